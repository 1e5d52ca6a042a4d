#include "train/session.h"

#include <omp.h>

#include "train/snapshot.h"

namespace q2 {
namespace {

TrainingMemory carve(const Config& c, const Ops& ops, int64_t batch, bool trained, Arena& arena) {
    return trained ? carve_training(c, ops, arena) : carve_inference(c, ops, batch, arena);
}

size_t bytes_to_carve(const Config& c, const Ops& ops, int64_t batch, bool trained) {
    Arena count;
    carve(c, ops, batch, trained, count);
    return count.used();
}

}  // namespace

const Config& with_threads(const Config& c) {
    if (c.train.threads > 0) omp_set_num_threads(int(c.train.threads));
    return c;
}

Session::Session(const Config& c) : Session(c, 0, true) {}
Session::Session(const Config& c, int64_t batch) : Session(c, batch, false) {}

Session::Session(const Config& c, int64_t batch, bool trained)
    : config_(with_threads(c)),
      trained_(trained),
      backend_(c.train.backend, int(c.train.device)),
      device_(backend_.ops().describe(ctx())),
      runtime_bytes_(memory_use().held),
      scratch_(ctx(),
               trained ? training_scratch(c, backend_.ops()) : inference_scratch(c, backend_.ops(), batch)),
      memory_bytes_(ctx(), bytes_to_carve(c, backend_.ops(), batch, trained)),
      arena_(memory_bytes_.data(), memory_bytes_.bytes()),
      memory_(carve(c, backend_.ops(), batch, trained, arena_)) {
    backend_.ops().time_matmuls(ctx(), config_.train.matmul == "timed");
    ctx().scratch = scratch_.data();
    ctx().scratch_bytes = scratch_.bytes();
    upload_rope_table(ctx(), memory_.model);
}

void Session::upload(const Tensor& flat, const std::vector<float>& values) {
    backend_.ops().upload(ctx(), flat.data, values.data(), flat.bytes());
    backend_.ops().synchronize(ctx());
}

/// On the CPU memory is the process's once it is written to. What the passes use is written here, when no
/// copy of the weights is held any more: a run that cannot have its memory ends before its first step.
void Session::commit() {
    char* const passes = static_cast<char*>(memory_.ids.data);
    const char* const end = static_cast<char*>(memory_bytes_.data()) + memory_bytes_.bytes();
    backend_.ops().zero(ctx(), passes, size_t(end - passes));
    backend_.ops().zero(ctx(), scratch_.data(), scratch_.bytes());
}

void Session::initialise() {
    {
        std::vector<float> values(size_t(memory_.model.table.size));
        q2::initialise(memory_.model.table, config_.train.seed, values.data());
        upload(memory_.model.params, values);
    }
    if (trained_)
        for (const Tensor& moment : {memory_.moment1, memory_.moment2})
            backend_.ops().zero(ctx(), moment.data, moment.bytes());
    commit();
}

void Session::load(const std::string& checkpoint) {
    load_parts(checkpoint);
    commit();
}

void Session::load_parts(const std::string& checkpoint) {
    std::vector<float> values(size_t(memory_.model.table.size));
    for (const SavedVector& saved : saved_vectors(memory_, trained_)) {
        load_tensors(checkpoint + "/" + saved.file,
                     named_parts(config_.model, memory_.model.table, saved.prefix, values.data()));
        upload(saved.flat, values);
    }
}

CheckpointMeta Session::meta(int64_t step, const nlohmann::json& extra) const {
    return {.step = step,
            .seed = config_.train.seed,
            .data_position = step * config_.step_sequences(),
            .config = config_to_json(config_),
            .extra = extra};
}

}  // namespace q2
