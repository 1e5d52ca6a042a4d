// A run's folder: who may work in it, what a resume may change, and what others read of it.
#pragma once

#include <string>
#include <vector>

#include "train/checkpoint.h"
#include "train/config.h"

namespace q2 {

std::string metrics_path(const std::string& run);

/// RUN/lock, held by the one process that trains there; the kernel lets go of it however the process ends.
class RunLock {
  public:
    /// Throws Exit::usage, naming the process, if another holds it; Exit::data if the folder cannot be
    /// written to.
    explicit RunLock(const std::string& run);
    ~RunLock();
    RunLock(const RunLock&) = delete;
    RunLock& operator=(const RunLock&) = delete;

  private:
    int descriptor_ = -1;
};

/// Throws Exit::usage unless no run has begun there: nothing, or a folder with only what a killed start left.
void check_free(const std::string& run);
void make_run_folder(const std::string& run);
void write_config(const std::string& run, const Config&);

/// The run's config.json with what a resume changes, which must be what cannot change results.
Config config_of_run(const std::string& run, const std::vector<std::string>& overrides = {});
/// A config edited by hand since the checkpoint was saved would give a run that no config describes.
void check_same_config(const Config&, const CheckpointMeta&, const std::string& run);

/// find_latest_checkpoint, with a line on stderr for each that was skipped.
CheckpointSearch search_checkpoints(const std::string& run);

/// The newest good checkpoint of a run and the config that it was made with; messages about skipped ones go
/// to stderr.
struct RunCheckpoint {
    Config config;
    std::string folder;
    int64_t step;  ///< steps done
};
RunCheckpoint open_run(const std::string& run);

class Session;
/// session.load, and the right message if a training has removed the checkpoint since.
void load_checkpoint(Session&, const RunCheckpoint&);

}  // namespace q2
