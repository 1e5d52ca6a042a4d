// Learning rates: pinned values, exact ends, no jumps, and the edge cases of short runs.
#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace q2 {
namespace {

ScheduleConfig schedule_of(const std::string& kind, double warmup = 0.1) {
    ScheduleConfig s;
    s.kind = kind;
    s.warmup = warmup;
    return s;
}

constexpr double kLr = 1.2e-3;
const char* const kKinds[] = {"constant", "linear", "cosine", "wsd"};

TEST(Schedule, CosineFollowsItsFormula) {
    const ScheduleConfig s = schedule_of("cosine");
    const double S = 800, W = 80;
    for (int step : {0, 1, 40, 79, 80, 81, 400, 798, 799}) {
        const double expected =
            step < W ? kLr * (0.01 + 0.99 * (1 - std::cos(std::numbers::pi * step / W)) / 2)
                     : kLr * (0.1 + 0.9 * (1 + std::cos(std::numbers::pi * (step - W) / (S - 1 - W))) / 2);
        EXPECT_NEAR(learning_rate(s, kLr, step, 800), expected, 1e-15) << step;
    }
    EXPECT_NEAR(learning_rate(s, kLr, 40, 800), kLr * 0.505, 1e-15);  // halfway up
}

TEST(Schedule, EndsAreExact) {
    for (const char* kind : kKinds) {
        const ScheduleConfig s = schedule_of(kind);
        EXPECT_EQ(learning_rate(s, kLr, 0, 800), kLr * 0.01) << kind;
        EXPECT_EQ(learning_rate(s, kLr, 80, 800), kLr) << kind;
        EXPECT_EQ(learning_rate(s, kLr, 799, 800), kind == std::string("constant") ? kLr : kLr * 0.1) << kind;
    }
}

TEST(Schedule, RisesThenNeverRisesAndNeverJumps) {
    for (const char* kind : kKinds) {
        for (const char* shape : {"linear", "sqrt"}) {
            ScheduleConfig s = schedule_of(kind);
            s.decay_shape = shape;
            for (int step = 1; step < 800; ++step) {
                const double change = learning_rate(s, 1, step, 800) - learning_rate(s, 1, step - 1, 800);
                EXPECT_TRUE(step <= 80 ? change > 0 : change <= 0) << kind << step;
                // 1 - sqrt is steepest at its start: 0.9 / sqrt(160) a step.
                EXPECT_LT(std::abs(change), 0.08) << kind << step;
            }
        }
    }
}

TEST(Schedule, Linear) {
    const ScheduleConfig s = schedule_of("linear", 0);
    EXPECT_NEAR(learning_rate(s, 1, 0, 101), 1, 1e-15);
    EXPECT_NEAR(learning_rate(s, 1, 50, 101), 0.55, 1e-15);
    EXPECT_NEAR(learning_rate(s, 1, 100, 101), 0.1, 1e-15);
}

TEST(Schedule, WsdIsFlatThenDecays) {
    ScheduleConfig s = schedule_of("wsd", 10);
    s.final = 0;
    for (int step = 10; step < 80; ++step) EXPECT_EQ(learning_rate(s, 1, step, 100), 1) << step;
    EXPECT_NEAR(learning_rate(s, 1, 80, 100), 0.95, 1e-15);  // the first of 20 decaying steps
    EXPECT_NEAR(learning_rate(s, 1, 89, 100), 0.5, 1e-15);
    EXPECT_EQ(learning_rate(s, 1, 99, 100), 0);
    s.decay_shape = "sqrt";
    EXPECT_EQ(learning_rate(s, 1, 79, 100), 1);
    EXPECT_NEAR(learning_rate(s, 1, 84, 100), 0.5, 1e-15);  // a quarter of the way: 1 - sqrt(1/4)
    EXPECT_EQ(learning_rate(s, 1, 99, 100), 0);
}

TEST(Schedule, WarmupByFractionOrSteps) {
    EXPECT_EQ(steps_of(0.1, 800), 80);
    EXPECT_EQ(steps_of(80, 800), 80);
    EXPECT_EQ(steps_of(0.29, 100), 29);  // 0.29 * 100 is below 29 in binary
    EXPECT_EQ(steps_of(1, 800), 1);
    EXPECT_EQ(steps_of(0, 800), 0);
    for (int step : {0, 30, 100})
        EXPECT_EQ(learning_rate(schedule_of("cosine", 80), 1, step, 800),
                  learning_rate(schedule_of("cosine", 0.1), 1, step, 800));
}

TEST(Schedule, ShortRunsStayFinite) {
    for (const char* kind : kKinds)
        for (int steps = 1; steps <= 12; ++steps)
            for (int warmup = 0; warmup <= steps; ++warmup)
                for (int step = 0; step < steps; ++step) {
                    const double lr = learning_rate(schedule_of(kind, warmup), 1, step, steps);
                    EXPECT_TRUE(lr >= 0.01 && lr <= 1) << kind << steps << warmup << step << " " << lr;
                    const bool decays = warmup < steps && kind != std::string("constant");
                    EXPECT_TRUE(step < steps - 1 || !decays || lr == 0.1) << kind << steps << warmup;
                }
}

TEST(Schedule, NoWarmupStartsAtThePeakAndAllWarmupEndsBelowIt) {
    EXPECT_EQ(learning_rate(schedule_of("cosine", 0), 1, 0, 100), 1);
    EXPECT_EQ(learning_rate(schedule_of("cosine", 100), 1, 0, 100), 0.01);
    EXPECT_LT(learning_rate(schedule_of("cosine", 100), 1, 99, 100), 1);
    EXPECT_GT(learning_rate(schedule_of("cosine", 100), 1, 99, 100), 0.99);
    EXPECT_THROW(learning_rate(schedule_of("cosine"), 1, 100, 100), Error);
}

}  // namespace
}  // namespace q2
