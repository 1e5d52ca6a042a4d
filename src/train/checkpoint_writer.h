// Saves that go on beside the training: a thread writes one checkpoint at a time from a host copy.
#pragma once

#include <future>
#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint.h"
#include "train/config.h"
#include "train/metrics.h"

namespace q2 {

/// A checkpoint that is published: whole, on the disk and under its name.
struct SavedCheckpoint {
    std::string folder;
    double seconds = 0;   ///< from the copy to its publication and the removal of older ones
    std::string warning;  ///< why an older one could not be removed; empty as a rule
};

class CheckpointWriter {
  public:
    /// Of RUN; `metrics` are flushed before a checkpoint is published, so that no record before it is lost.
    CheckpointWriter(std::string run, const CheckpointConfig& settings, MetricsWriter& metrics)
        : run_(std::move(run)), settings_(settings), metrics_(metrics) {}
    /// Waits for the save at hand.
    ~CheckpointWriter() = default;

    /// Begins to write what `files` point to, which must stay as it is until the save has ended. The former
    /// save must have been collected.
    void start(CheckpointMeta meta, std::vector<CheckpointFile> files);
    /// The save, if one has ended since the last call; throws its error.
    std::optional<SavedCheckpoint> poll();
    /// Waits for the save at hand, if there is one; throws its error.
    std::optional<SavedCheckpoint> wait();

  private:
    SavedCheckpoint save(const CheckpointMeta&, const std::vector<CheckpointFile>&) const;

    std::string run_;
    CheckpointConfig settings_;
    MetricsWriter& metrics_;
    std::future<SavedCheckpoint> job_;  ///< of std::async: its end waits for the thread
};

}  // namespace q2
