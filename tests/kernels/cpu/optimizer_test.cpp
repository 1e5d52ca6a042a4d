#include <limits>

#include "tests/kernels/cpu/op_test.h"

namespace q2::test {
namespace {

constexpr int64_t kRows = 401, kCols = 101;  // three chunks and a part
constexpr float kDecay = 0.1f;
constexpr AdamWSettings kSettings{0.8f, 0.9f, 1e-2f};  // an epsilon that is felt

struct Weights {
    Array p = Array::random(kRows, kCols, 1), m = Array::of(Values(kRows * kCols), kRows, kCols),
          v = Array::of(Values(kRows * kCols), kRows, kCols);
    Amax amax{};

    void step(const StepState& state, uint32_t seed) {
        Array g = Array::random(kRows, kCols, seed);
        OpContext ctx;
        cpu::adamw(ctx, p, m, v, g, kSettings, kDecay, &state, &amax);
    }
};

StepState state_of(int step) {
    StepState state;
    state.learning_rate = 0.01f;
    state.clip_factor = 0.5f;
    state.moment1_correction = float(1 - std::pow(0.8, step + 1));
    state.moment2_correction = float(1 - std::pow(0.9, step + 1));
    return state;
}

TEST(AdamW, EqualsDoublePrecision) {
    Weights weights;
    Values p = weights.p.values(), m(p.size()), v(p.size());
    for (int step = 0; step < 5; ++step) {
        weights.step(state_of(step), uint32_t(10 + step));
        const Values g = Array::random(kRows, kCols, uint32_t(10 + step)).values();
        for (size_t i = 0; i < p.size(); ++i) {
            const double gradient = 0.5 * g[i];
            m[i] = 0.8 * m[i] + 0.2 * gradient;
            v[i] = 0.9 * v[i] + 0.1 * gradient * gradient;
            const double m_hat = m[i] / (1 - std::pow(0.8, step + 1));
            const double v_hat = v[i] / (1 - std::pow(0.9, step + 1));
            p[i] -= 0.01 * double(kDecay) * p[i];
            p[i] -= 0.01 * m_hat / (std::sqrt(v_hat) + 1e-2);
        }
    }
    expect_close(weights.p, p, 1e-6, "p");
    expect_close(weights.m, m, 1e-6, "m");
    expect_close(weights.v, v, 1e-6, "v");
    EXPECT_EQ(weights.amax.bits, amax_bits(weights.p));
}

TEST(AdamW, SkipChangesNothing) {
    Weights weights;
    weights.step(state_of(0), 10);
    const Weights before = weights;
    StepState state = state_of(1);
    state.skip = 1;
    weights.step(state, 11);
    EXPECT_EQ(weights.p.bytes(), before.p.bytes());
    EXPECT_EQ(weights.m.bytes(), before.m.bytes());
    EXPECT_EQ(weights.v.bytes(), before.v.bytes());
    EXPECT_EQ(weights.amax.bits, before.amax.bits);
}

TEST(AdamW, ThreadsDoNotChangeBits) {
    expect_same_bits_on_two_threads([] {
        Weights weights;
        weights.step(state_of(0), 10);
        return std::vector<Array>{weights.p, weights.m, weights.v, Array::ids({int32_t(weights.amax.bits)})};
    });
}

StepState norm_of(Array grads, float clip, float loss = 1.0f) {
    StepState state;
    state.loss = loss;
    OpContext ctx(cpu::gradient_norm_scratch(grads.size()));
    cpu::gradient_norm(ctx, &state, grads, clip);
    return state;
}

TEST(GradientNorm, NormAndClipFactor) {
    const Array grads = Array::random(kRows, kCols, 1);
    const double norm = std::sqrt(dot(grads.values(), grads.values()));
    const StepState clipped = norm_of(grads, 1.0f);
    EXPECT_NEAR(clipped.grad_norm, norm, 1e-6 * norm);
    EXPECT_NEAR(clipped.clip_factor, 1 / norm, 1e-6 / norm);
    EXPECT_EQ(clipped.skip, 0u);
    EXPECT_EQ(norm_of(grads, 1e6f).clip_factor, 1.0f);
    EXPECT_EQ(norm_of(grads, 0.0f).clip_factor, 1.0f);
}

TEST(GradientNorm, SquaresBeyondFloatAreNoOverflow) {
    const StepState state = norm_of(Array::of({3e30, 4e30}, 1, 2), 1.0f);
    EXPECT_FLOAT_EQ(state.grad_norm, 5e30f);
    EXPECT_EQ(state.skip, 0u);
}

// Up to the largest norm AdamW's second moment is finite; beyond it the step is one without an update.
TEST(GradientNorm, ANormWhoseSquareOverflowsSkips) {
    const float largest = StepState::kLargestNorm;
    Array grads = Array::of({largest, 0}, 1, 2), beyond = Array::of({1.01 * largest, 0}, 1, 2);
    EXPECT_EQ(norm_of(beyond, 0.0f).skip, kNonFinite);
    EXPECT_EQ(norm_of(beyond, 1e30f).skip, kNonFinite) << "clipping that does not clip";
    EXPECT_EQ(norm_of(beyond, 0.5f * largest).skip, kNotSkipped);
    StepState state = norm_of(grads, 0.0f);
    EXPECT_EQ(state.skip, kNotSkipped);
    const AdamWSettings settings{.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f};
    state.moment1_correction = 1.0f - settings.beta1;
    state.moment2_correction = 1.0f - settings.beta2;
    Array p = Array::of({1, 1}, 1, 2), m = Array::of({0, 0}, 1, 2), v = Array::of({0, 0}, 1, 2);
    OpContext ctx;
    cpu::adamw(ctx, p, m, v, grads, settings, 0.1f, &state, nullptr);
    for (Array* x : {&p, &m, &v})
        for (const double value : x->values()) EXPECT_TRUE(std::isfinite(value)) << value;
}

TEST(GradientNorm, NonFiniteGradientOrLossSkips) {
    const double inf = std::numeric_limits<double>::infinity();
    for (double bad : {std::nan(""), inf, -inf}) {
        Array grads = Array::random(kRows, kCols, 1);
        EXPECT_EQ(norm_of(grads, 1.0f, float(bad)).skip, 1u) << bad;
        grads.set(kRows * kCols - 1, bad);
        EXPECT_EQ(norm_of(grads, 1.0f).skip, 1u) << bad;
    }
}

TEST(GradientNorm, SkipIsNotCleared) {
    Array grads = Array::random(3, 5, 1);
    StepState state;
    state.skip = 1;
    OpContext ctx(cpu::gradient_norm_scratch(grads.size()));
    cpu::gradient_norm(ctx, &state, grads, 1.0f);
    EXPECT_EQ(state.skip, 1u);
}

TEST(GradientNorm, ThreadsDoNotChangeBits) {
    expect_same_bits_on_two_threads([] {
        const StepState state = norm_of(Array::random(kRows, kCols, 1), 1.0f);
        return std::vector<Array>{Array::of({state.grad_norm, state.clip_factor}, 1, 2)};
    });
}

}  // namespace
}  // namespace q2::test
