// Checkpoints of a run: RUN/checkpoints/step-00001000/ with safetensors files and manifest.json, which holds
// size and checksum of every file and of itself. The folder is written as step-00001000.tmp, flushed, then
// renamed: a save that dies leaves nothing that could be taken for a checkpoint.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "train/tensor_io.h"

namespace q2 {

struct CheckpointMeta {
    int64_t step = 0;  ///< optimiser steps done; the next one has this number
    uint64_t seed = 0;
    int64_t world_size = 1;
    int64_t data_position = 0;                         ///< samples read since the run's start
    nlohmann::json config = nlohmann::json::object();  ///< resolved
    nlohmann::json extra = nlohmann::json::object();   ///< what else a resume must know
};

/// One file of a checkpoint, such as model.safetensors or optimizer.safetensors.
struct CheckpointFile {
    std::string name;
    std::vector<NamedTensor> tensors;
};

/// Returns the checkpoint's folder. One of the same step is replaced. Throws Exit::data, leaving no part.
std::string save_checkpoint(const std::string& run, const CheckpointMeta& meta,
                            std::span<const CheckpointFile> files);

/// Reads the manifest and checks sizes and checksums of all files; throws Exit::data saying what is wrong.
CheckpointMeta verify_checkpoint(const std::string& folder);

struct SkippedCheckpoint {
    std::string folder, reason;
    bool finished = true;  ///< false: its save was interrupted, so it never was one
};

struct CheckpointSearch {
    std::optional<std::string> folder;       ///< the newest that verifies
    CheckpointMeta meta;                     ///< of it
    std::vector<SkippedCheckpoint> skipped;  ///< newer ones that do not, newest first
};

CheckpointSearch find_latest_checkpoint(const std::string& run);

/// Deletes all but the newest `keep` checkpoints (0: keeps all), and nothing unless one that stays verifies;
/// damaged ones do not count. Returns the deleted folders.
std::vector<std::string> prune_checkpoints(const std::string& run, int64_t keep);

}  // namespace q2
