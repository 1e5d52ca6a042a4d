#include "train/checkpoint_writer.h"

#include <chrono>
#include <utility>

#include "base/check.h"

namespace q2 {

using Clock = std::chrono::steady_clock;

SavedCheckpoint CheckpointWriter::save(const CheckpointMeta& meta,
                                       const std::vector<CheckpointFile>& files) const {
    const auto start = Clock::now();
    metrics_.flush();
    SavedCheckpoint saved{.folder = save_checkpoint(run_, meta, files)};
    try {
        prune_checkpoints(run_, settings_.keep, settings_.keep_every);
    } catch (const Error& error) {  // takes room, but loses nothing
        saved.warning = error.what();
    }
    saved.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return saved;
}

void CheckpointWriter::start(CheckpointMeta meta, std::vector<CheckpointFile> files) {
    require(!job_.valid(), "a save begins before the former has ended");
    job_ = std::async(std::launch::async,
                      [this, meta = std::move(meta), files = std::move(files)] { return save(meta, files); });
}

std::optional<SavedCheckpoint> CheckpointWriter::poll() {
    if (!job_.valid() || job_.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
        return std::nullopt;
    return job_.get();
}

std::optional<SavedCheckpoint> CheckpointWriter::wait() {
    if (!job_.valid()) return std::nullopt;
    return job_.get();
}

}  // namespace q2
