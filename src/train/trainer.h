// A training run: its folder, its loop, its checkpoints.
#pragma once

#include <string>
#include <vector>

#include "base/check.h"
#include "train/config.h"

namespace q2 {

/// Starts a run in a folder that must not exist yet, or be empty. Nothing is written before config and data
/// are checked.
Exit start_run(const Config&, const std::string& run);

/// Goes on from RUN's newest good checkpoint, or from the start if it has none. `overrides` may change only
/// what does not change results: backend, device, threads, what ends a run, and the log's and checkpoints'
/// settings.
Exit resume_run(const std::string& run, const std::vector<std::string>& overrides);

/// The newest good checkpoint of a run and the config that it was made with; messages about skipped ones go
/// to stderr.
struct RunCheckpoint {
    Config config;
    std::string folder;
    int64_t step;  ///< steps done
};
RunCheckpoint open_run(const std::string& run);

}  // namespace q2
