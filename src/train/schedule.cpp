#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace q2 {
namespace {

/// How far step s is from `first` (0) to the run's last step (1); a decay of no length is over at once.
double progress(int64_t s, int64_t first, int64_t steps) {
    const int64_t length = steps - 1 - first;
    return length > 0 ? double(s - first) / double(length) : 1.0;
}

/// 1 at p = 0, 0 at p = 1, both exactly.
double falling_cosine(double p) { return (1 + std::cos(std::numbers::pi * p)) / 2; }

double wsd_shape(const ScheduleConfig& schedule, int64_t step, int64_t steps, int64_t warmup) {
    const int64_t length = std::max<int64_t>(1, steps_of(schedule.decay_fraction, steps));
    const int64_t flat_until = std::max(warmup, steps - 1 - length);
    if (step < flat_until) return 1;
    const double p = progress(step, flat_until, steps);
    return schedule.decay_shape == "sqrt" ? 1 - std::sqrt(p) : 1 - p;
}

}  // namespace

int64_t steps_of(double fraction_or_steps, int64_t steps) {
    return std::llround(fraction_or_steps < 1 ? fraction_or_steps * double(steps) : fraction_or_steps);
}

double learning_rate(const ScheduleConfig& schedule, double lr, int64_t step, int64_t steps) {
    require(step >= 0 && step < steps, "learning rate of step ", step, " of ", steps);
    const int64_t warmup = steps_of(schedule.warmup, steps);
    if (step < warmup)
        return lr *
               (schedule.start + (1 - schedule.start) * (1 - falling_cosine(double(step) / double(warmup))));
    if (schedule.kind == "constant") return lr;
    const double shape = schedule.kind == "wsd"      ? wsd_shape(schedule, step, steps, warmup)
                         : schedule.kind == "linear" ? 1 - progress(step, warmup, steps)
                                                     : falling_cosine(progress(step, warmup, steps));
    return lr * (schedule.final + (1 - schedule.final) * shape);
}

}  // namespace q2
