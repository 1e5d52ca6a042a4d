#include "train/snapshot.h"

#include <cstring>

namespace q2 {

std::vector<SavedVector> saved_vectors(const TrainingMemory& memory, bool trained) {
    constexpr const char *kModel = "model.safetensors", *kOptimizer = "optimizer.safetensors";
    std::vector<SavedVector> saved = {{memory.model.params, kModel, ""}};
    if (trained) {
        saved.push_back({memory.moment1, kOptimizer, "moment1."});
        saved.push_back({memory.moment2, kOptimizer, "moment2."});
    }
    return saved;
}

std::vector<NamedTensor> named_parts(const ModelConfig& model, const ParameterTable& table,
                                     const std::string& prefix, float* values) {
    std::vector<NamedTensor> tensors;
    for (const HfTensor& t : hf_tensors(model, table)) {
        const std::vector<int64_t> shape = t.vector ? std::vector{t.cols} : std::vector{t.rows, t.cols};
        tensors.push_back({prefix + t.name, Dtype::f32, shape, values + t.offset});
    }
    return tensors;
}

Snapshot::Snapshot(Context& ctx, const TrainingMemory& memory)
    : ctx_(ctx),
      memory_(memory),
      copy_(ctx, saved_vectors(memory, true).size() * sizeof(float) * vector_size()) {
    // On the CPU memory is the process's once it is written to; a run that cannot have it must not start.
    std::memset(copy_.data(), 0, copy_.bytes());
}

void Snapshot::take() {
    const std::vector<SavedVector> saved = saved_vectors(memory_, true);
    for (size_t i = 0; i < saved.size(); ++i)
        ctx_.ops->download(ctx_, part(i), saved[i].flat.data, saved[i].flat.bytes());
}

std::vector<CheckpointFile> Snapshot::files(const ModelConfig& model) const {
    std::vector<CheckpointFile> files;
    const std::vector<SavedVector> saved = saved_vectors(memory_, true);
    for (size_t i = 0; i < saved.size(); ++i) {
        if (files.empty() || files.back().name != saved[i].file) files.push_back({saved[i].file, {}});
        for (NamedTensor& t : named_parts(model, memory_.model.table, saved[i].prefix, part(i)))
            files.back().tensors.push_back(std::move(t));
    }
    return files;
}

}  // namespace q2
