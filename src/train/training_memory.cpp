#include "train/training_memory.h"

#include <algorithm>

namespace q2 {
namespace {

void carve_batch(TrainingMemory& memory, int64_t tokens, Arena& arena) {
    memory.state = static_cast<StepState*>(arena.take(sizeof(StepState), Use::optimizer));
    memory.eval_loss = static_cast<float*>(arena.take(sizeof(float), Use::batch));
    memory.ids = arena.take(Dtype::i32, tokens, 1, Use::batch);
    memory.targets = arena.take(Dtype::i32, tokens, 1, Use::batch);
}

Activations carve_evaluation(const Config& c, const RecipePlan& plan, const Ops& ops, int64_t batch,
                             Arena& arena) {
    return carve_activations(c.model, plan, ops.dense_dtype, batch, c.data.sequence, false, arena);
}

}  // namespace

TrainingMemory carve_training(const Config& c, const Ops& ops, Arena& arena) {
    const RecipePlan plan = recipe_plan(c);
    const int64_t batch = c.train.micro_batch, eval_batch = c.train.eval_micro_batch;
    TrainingMemory memory{
        .model = carve_model(c.model, plan, c.train.init_std, c.data.sequence, ops.dense_dtype, true, arena)};
    memory.moment1 = arena.take(Dtype::f32, 1, memory.model.table.size, Use::optimizer);
    memory.moment2 = arena.take(Dtype::f32, 1, memory.model.table.size, Use::optimizer);
    carve_batch(memory, std::max(batch, eval_batch) * c.data.sequence, arena);
    const size_t mark = arena.used();
    memory.train = carve_activations(c.model, plan, ops.dense_dtype, batch, c.data.sequence, true, arena);
    // The evaluation's activations lie over the training's, which are dead between steps.
    Arena count;
    carve_evaluation(c, plan, ops, eval_batch, count);
    const size_t taken = arena.used() - mark;
    if (count.used() > taken) arena.take(count.used() - taken, Use::evaluation);
    Arena overlay = arena.over(mark);
    memory.eval = carve_evaluation(c, plan, ops, eval_batch, overlay);
    return memory;
}

TrainingMemory carve_inference(const Config& c, const Ops& ops, int64_t batch, Arena& arena) {
    const RecipePlan plan = recipe_plan(c);
    TrainingMemory memory{.model = carve_model(c.model, plan, c.train.init_std, c.data.sequence,
                                               ops.dense_dtype, false, arena)};
    carve_batch(memory, batch * c.data.sequence, arena);
    memory.eval = carve_evaluation(c, plan, ops, batch, arena);
    return memory;
}

size_t training_scratch(const Config& c, const Ops& ops) {
    const RecipePlan plan = recipe_plan(c);
    return std::max({model_scratch(ops, c.model, plan, c.train.micro_batch, c.data.sequence, true),
                     model_scratch(ops, c.model, plan, c.train.eval_micro_batch, c.data.sequence, false),
                     ops.gradient_norm_scratch(parameter_table(c.model, 0.02).size)});
}

size_t inference_scratch(const Config& c, const Ops& ops, int64_t batch) {
    return model_scratch(ops, c.model, recipe_plan(c), batch, c.data.sequence, false);
}

}  // namespace q2
