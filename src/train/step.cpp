#include "train/step.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "train/optimizer.h"
#include "train/schedule.h"

namespace q2 {
namespace {

/// Micro-batch numbers of evaluations begin here, so that no draw of training is used again.
constexpr uint32_t kEvaluationMicroBatch = 1u << 24;

StepState initial_state(const Config& c, int64_t step) {
    StepState s;
    s.seed = c.train.seed;
    s.step = uint32_t(step);
    s.learning_rate = float(learning_rate(c.schedule, c.optimizer.lr, step, c.train.steps));
    s.moment1_correction = float(1.0 - std::pow(c.optimizer.beta1, double(step + 1)));
    s.moment2_correction = float(1.0 - std::pow(c.optimizer.beta2, double(step + 1)));
    return s;
}

void set_micro_batch(Training& t, uint32_t number) {
    char* state = reinterpret_cast<char*>(t.memory.state);
    t.ctx.ops->upload(t.ctx, state + offsetof(StepState, micro_batch), &number, sizeof(number));
}

/// Uploads samples first..first+count-1 as the pass's ids and targets. The rest of the micro-batch, if any,
/// repeats them with targets that count nothing.
Pass load_pass(Training& t, Activations& act, const DataLoader& data, int64_t first, int64_t count,
               const Probe& probe) {
    const int64_t sequence = act.shape.sequence;
    std::vector<int32_t> ids(size_t(act.tokens())), targets(size_t(act.tokens()), -1);
    data.fill(first, count, ids.data(), targets.data());
    for (int64_t i = count * sequence; i < act.tokens(); ++i)
        ids[size_t(i)] = ids[size_t(i - count * sequence)];
    const Pass pass{t.ctx,
                    t.memory.model,
                    act,
                    t.memory.state,
                    t.memory.ids.slice(0, act.tokens()),
                    t.memory.targets.slice(0, act.tokens()),
                    probe};
    t.ctx.ops->upload(t.ctx, pass.ids.data, ids.data(), pass.ids.bytes());
    t.ctx.ops->upload(t.ctx, pass.targets.data, targets.data(), pass.targets.bytes());
    return pass;
}

/// Forward and backward of micro-batch `number` of the step.
void run_micro_batch(Training& t, int64_t step, int64_t number, const Probe& probe) {
    const Config& c = t.config;
    set_micro_batch(t, uint32_t(number));
    prepare_weights(t.ctx, t.memory.model, t.memory.state, number > 0);
    const Pass pass =
        load_pass(t, t.memory.train, t.data, first_sample(c, step, number), c.train.micro_batch, probe);
    forward(pass);
    head(pass, &t.memory.state->loss, float(1.0 / double(c.step_tokens())), true);
    backward(pass);
}

void begin_step(Training& t, int64_t step, UpdateLimits limits) {
    StepState state = initial_state(t.config, step);
    state.loss_limit = limits.loss;
    state.norm_limit = limits.grad_norm;
    t.ctx.ops->upload(t.ctx, t.memory.state, &state, sizeof(state));
    t.ctx.ops->zero(t.ctx, t.memory.model.grads.data, t.memory.model.grads.bytes());
    select_recipes(t.memory.model, step);
}

/// probe(name, part) for every parameter's part of a flat vector.
void for_each_part(const Tensor& flat, const ParameterTable& table, const Probe& probe) {
    for (const Parameter& p : table.list)
        probe(p.name, {flat.as<float>() + p.offset, Dtype::f32, p.rows, p.cols});
}

void check_finite(Training& t, const Tensor& x, const std::string& what) {
    const int64_t bad = t.ctx.ops->count_non_finite(t.ctx, x);
    check(bad == 0, Exit::non_finite, what, " holds ", bad, " values that are not finite");
}

}  // namespace

int64_t first_sample(const Config& c, int64_t step, int64_t micro_batch) {
    return step * c.step_sequences() + micro_batch * c.train.micro_batch;
}

StepState train_step(Training& t, int64_t step, UpdateLimits limits) {
    begin_step(t, step, limits);
    for (int64_t number = 0; number < t.config.train.accumulate; ++number)
        run_micro_batch(t, step, number, {});
    optimizer_update(t.ctx, t.memory, t.config.optimizer);
    StepState state;
    t.ctx.ops->download(t.ctx, &state, t.memory.state, sizeof(state));
    return state;
}

void repeat_micro_batch(Training& t, int64_t step, int64_t number, const Probe& probe) {
    begin_step(t, step, {});
    run_micro_batch(t, step, number, probe);
}

double evaluate(Training& t, const DataLoader& val, int64_t step, int64_t batches) {
    return *evaluate_unless([] { return false; }, t, val, step, batches);
}

std::optional<double> evaluate_unless(const std::function<bool()>& stop, Training& t, const DataLoader& val,
                                      int64_t step, int64_t batches) {
    const int64_t size = t.memory.eval.shape.batch, sequence = t.memory.eval.shape.sequence;
    const int64_t windows = batches > 0 ? std::min(val.windows(), batches * size) : val.windows();
    const StepState state = initial_state(t.config, step);
    t.ctx.ops->upload(t.ctx, t.memory.state, &state, sizeof(state));
    select_recipes(t.memory.model, step);
    double total = 0;
    for (int64_t first = 0; first < windows; first += size) {
        if (stop()) return std::nullopt;
        const int64_t count = std::min(size, windows - first);
        set_micro_batch(t, kEvaluationMicroBatch + uint32_t(first / size));
        prepare_weights(t.ctx, t.memory.model, t.memory.state, first > 0);
        const Pass pass = load_pass(t, t.memory.eval, val, first, count, {});
        t.ctx.ops->zero(t.ctx, t.memory.eval_loss, sizeof(float));
        forward(pass);
        head(pass, t.memory.eval_loss, 1.0f / float(count * sequence), false);
        float loss = 0;
        t.ctx.ops->download(t.ctx, &loss, t.memory.eval_loss, sizeof(loss));
        total += loss * double(count);
    }
    return total / double(windows);
}

void report_non_finite(Training& t, int64_t step, const StepState& state, const std::string& remark) {
    const std::string outcome =
        concat("step ", step + 1, " of ", t.config.train.steps, ": the loss is ", state.loss,
               " and the gradient norm ", state.grad_norm, "; the weights were not updated. ", remark);
    const Probe examine_weight = [&](const std::string& name, const Tensor& x) {
        check_finite(t, x, concat(outcome, "The weight ", name));
    };
    for_each_part(t.memory.model.params, t.memory.model.table, examine_weight);
    begin_step(t, step, {});
    for (int64_t number = 0; number < t.config.train.accumulate; ++number) {
        const auto where = t.data.location(first_sample(t.config, step, number));
        const Probe examine = [&](const std::string& what, const Tensor& x) {
            check_finite(
                t, x,
                concat(outcome, "First in micro-batch ", number, " (data from ",
                       t.data.files()[size_t(where.file)].path(), ", token ", where.offset, "): ", what));
        };
        run_micro_batch(t, step, number, examine);
        for_each_part(
            t.memory.model.grads, t.memory.model.table,
            [&](const std::string& name, const Tensor& x) { examine("the gradient of " + name, x); });
    }
    fail(Exit::non_finite, outcome,
         "Every result and every gradient of its micro-batches is finite: the loss, the norm or its square, "
         "which AdamW keeps, overflows float32");
}

}  // namespace q2
