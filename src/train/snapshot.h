// A host copy of what a checkpoint holds, made between two steps, so that it can be written while training
// goes on; and how the flat vectors are spread over a checkpoint's files.
#pragma once

#include <string>
#include <vector>

#include "ops/backend.h"
#include "train/checkpoint.h"
#include "train/training_memory.h"

namespace q2 {

/// A flat float32 vector of a training, and where a checkpoint has it.
struct SavedVector {
    Tensor flat;         ///< (1, table.size), on the device
    const char* file;    ///< in the checkpoint's folder
    const char* prefix;  ///< before the Hugging Face names
};
/// Weights, and of a trained session both moments.
std::vector<SavedVector> saved_vectors(const TrainingMemory&, bool trained);

/// The parts of a flat vector, in host memory, under `prefix` + their Hugging Face names.
std::vector<NamedTensor> named_parts(const ModelConfig&, const ParameterTable&, const std::string& prefix,
                                     float* values);

class Snapshot {
  public:
    /// Takes its memory for good, checkpoint_copy_bytes() of it (memory_plan.h), page-locked on a GPU, and
    /// writes to it.
    Snapshot(Context&, const TrainingMemory&);

    /// Copies from the device; done on return. Nothing may be reading files() then.
    void take();
    /// The copy as a checkpoint's files.
    std::vector<CheckpointFile> files(const ModelConfig&) const;
    size_t bytes() const { return copy_.bytes(); }

  private:
    float* part(size_t number) const { return static_cast<float*>(copy_.data()) + number * vector_size(); }
    size_t vector_size() const { return size_t(memory_.model.table.size); }

    Context& ctx_;
    const TrainingMemory& memory_;
    HostMemory copy_;
};

}  // namespace q2
