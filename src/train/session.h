// A config brought to life on a device: backend, memory, model, and its way to and from checkpoints.
#pragma once

#include <string>
#include <vector>

#include "ops/backend.h"
#include "train/checkpoint.h"
#include "train/training_memory.h"

namespace q2 {

/// Sets the CPU's threads, which must be known before anything asks how much scratch they need.
const Config& with_threads(const Config&);

class Session {
  public:
    /// For training: with gradients and moments.
    explicit Session(const Config&);
    /// For evaluation and generation, `batch` sequences at a time.
    Session(const Config&, int64_t batch);

    const Config& config() const { return config_; }
    Context& ctx() { return backend_.context(); }
    TrainingMemory& memory() { return memory_; }
    const TrainingMemory& memory() const { return memory_; }
    const std::string& device() const { return device_; }  ///< one line, with its name
    MemoryUse memory_use() { return backend_.ops().memory(ctx()); }
    /// Of the device's memory: what the plan says, the opened backend and all that is carved.
    size_t planned_bytes() const { return runtime_bytes_ + scratch_.bytes() + memory_bytes_.bytes(); }

    /// Weights from the seed, moments zero.
    void initialise();
    /// Weights, and when training moments, of a checkpoint that verified.
    void load(const std::string& checkpoint);
    /// What the manifest after `step` steps says, with what else it is to hold.
    CheckpointMeta meta(int64_t step, const nlohmann::json& extra = nlohmann::json::object()) const;

  private:
    Session(const Config&, int64_t batch, bool trained);
    void commit();
    void load_parts(const std::string& checkpoint);
    void upload(const Tensor& flat, const std::vector<float>& values);

    Config config_;
    bool trained_;
    Backend backend_;
    std::string device_;
    size_t runtime_bytes_;
    DeviceMemory scratch_, memory_bytes_;
    Arena arena_;
    TrainingMemory memory_;
};

}  // namespace q2
