// The learning rate of a step: cosine-shaped warm-up from lr*start, then constant, linear, cosine or WSD
// (warm-up, stable, decay: arXiv 2404.06395; its 1 - sqrt decay: arXiv 2405.18392).
#pragma once

#include <cstdint>

#include "train/config.h"

namespace q2 {

/// Below 1 a fraction of `steps`, rounded; from 1 up a number of steps.
int64_t steps_of(double fraction_or_steps, int64_t steps);

/// The learning rate of `step` in 0..steps-1; lr is the peak. W warm-up steps start at lr*start at step 0;
/// step W has lr, and the last step lr*final (constant: lr). Where one step is both, it is the last.
double learning_rate(const ScheduleConfig& schedule, double lr, int64_t step, int64_t steps);

}  // namespace q2
