// One optimiser step and one evaluation, on memory that is already carved.
#pragma once

#include <functional>
#include <optional>

#include "train/data_loader.h"
#include "train/training_memory.h"

namespace q2 {

/// The model, its data and its device: what a step works on.
struct Training {
    Context& ctx;
    const Config& config;
    TrainingMemory& memory;
    const DataLoader& data;
};

/// A loss or gradient norm above its limit makes the step one without an update.
struct UpdateLimits {
    float loss = StepState::kNoLimit, grad_norm = StepState::kNoLimit;
};

/// The number of the first sample of a step's micro-batch.
int64_t first_sample(const Config&, int64_t step, int64_t micro_batch);

/// Runs step `step` (from 0) and returns the state that it left on the device: loss, norm, clip factor, skip
/// flag.
StepState train_step(Training&, int64_t step, UpdateLimits = {});

/// Forward and backward of one micro-batch of a step alone: fills the gradients, updates nothing. The probe
/// sees every result.
void repeat_micro_batch(Training&, int64_t step, int64_t number, const Probe& probe = {});

/// Mean loss, in nats a token, over `batches` evaluation micro-batches (0: all of `val`), each token weighing
/// the same. Leaves the weights' operands prepared for `step`.
double evaluate(Training&, const DataLoader& val, int64_t step, int64_t batches);
/// The same; nothing if stop(), asked before each micro-batch, says so.
std::optional<double> evaluate_unless(const std::function<bool()>& stop, Training&, const DataLoader& val,
                                      int64_t step, int64_t batches);

/// Repeats step `step`, whose update did not happen, looking at every result as it is made; throws
/// Exit::non_finite naming step (as progress counts it, from 1), micro-batch, the batch's place in the data
/// and the first tensor that is not finite. `remark` stands before that.
[[noreturn]] void report_non_finite(Training&, int64_t step, const StepState&,
                                    const std::string& remark = {});

}  // namespace q2
