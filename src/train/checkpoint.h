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

/// Does not mind a training that adds and removes checkpoints meanwhile.
CheckpointSearch find_latest_checkpoint(const std::string& run);

/// What a look at one checkpoint said.
struct CheckpointVerdict {
    std::string folder;
    int64_t step = 0;
    bool finished = true;
    std::string problem;  ///< empty: good
};

/// Every checkpoint of a run, newest first, each file of it read.
std::vector<CheckpointVerdict> verify_checkpoints(const std::string& run);

/// Deletes all but the newest `keep` checkpoints (0: keeps all) and those whose step is a multiple of
/// `keep_every` (0: none), and nothing unless one that stays verifies; damaged ones do not count. Returns the
/// deleted folders.
std::vector<std::string> prune_checkpoints(const std::string& run, int64_t keep, int64_t keep_every = 0);

}  // namespace q2
