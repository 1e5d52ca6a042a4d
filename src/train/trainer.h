// A training run from its first step, or its newest checkpoint, to its end.
#pragma once

#include <string>
#include <vector>

#include "base/check.h"
#include "train/config.h"

namespace q2 {

/// Starts a run in a folder that must not exist yet, or be empty. Nothing is written before config and data
/// are checked. Returns Exit::ok when all is done, Exit::interrupted or Exit::time_limit when it was stopped
/// before, with a checkpoint of all that was done.
Exit start_run(const Config&, const std::string& run);

/// Goes on from RUN's newest good checkpoint, or from the start if it has none. `overrides` may change only
/// what does not change results: backend, device, threads, what ends a run, and the log's and checkpoints'
/// settings.
Exit resume_run(const std::string& run, const std::vector<std::string>& overrides);

}  // namespace q2
