#include "tests/kernels/cpu/op_test.h"

namespace q2::test {
namespace {

constexpr float kScale = 0.25f;

double row_loss(const Values& logits, int64_t row, int64_t vocab, int32_t target) {
    if (target < 0) return 0;
    const auto first = logits.begin() + row * vocab, last = first + vocab;
    const double largest = *std::max_element(first, last);
    double sum = 0;
    for (auto l = first; l != last; ++l) sum += std::exp(*l - largest);
    return std::log(sum) + largest - first[target];
}

struct Pass {
    Array losses, logits;

    Pass(Array in, const std::vector<int32_t>& targets, bool want_gradient = true)
        : losses(int64_t(targets.size()), 1), logits(in) {
        Array rows = Array::ids(targets);
        OpContext ctx;
        cpu::cross_entropy(ctx, losses, logits, rows, kScale, want_gradient);
    }
};

std::vector<int32_t> some_targets(int64_t rows, int64_t vocab) {
    std::mt19937 generator(5);
    std::vector<int32_t> targets(static_cast<size_t>(rows));
    for (int32_t& target : targets) target = int32_t(generator() % uint32_t(vocab));
    if (rows > 2) targets[1] = -1;
    return targets;
}

class CrossEntropy : public testing::TestWithParam<std::pair<int64_t, int64_t>> {};

TEST_P(CrossEntropy, LossAndGradient) {
    const auto [rows, vocab] = GetParam();
    const std::vector<int32_t> targets = some_targets(rows, vocab);
    const Array logits = Array::random(rows, vocab, 1);
    const Pass run(logits, targets), rounded(logits.as(Dtype::bf16), targets);
    Values want;
    for (int64_t row = 0; row < rows; ++row)
        want.push_back(row_loss(logits.values(), row, vocab, targets[size_t(row)]));
    expect_close(run.losses, want, 1e-6, "loss");
    expect_close(rounded.losses, want, 1e-6, "loss of bf16 logits");
    const auto total = [&](const Values& x) {
        double sum = 0;
        for (int64_t row = 0; row < rows; ++row) sum += row_loss(x, row, vocab, targets[size_t(row)]);
        return kScale * sum;
    };
    expect_gradient(run.logits, logits.values(), total, 1e-6, "dlogits");
    for (int64_t i = 0; i < run.logits.size(); ++i)
        ASSERT_LE(std::abs(rounded.logits[i] - run.logits[i]), 0x1p-8 * std::abs(run.logits[i])) << i;
}

INSTANTIATE_TEST_SUITE_P(Shapes, CrossEntropy,
                         testing::Values(std::pair<int64_t, int64_t>{1, 1},
                                         std::pair<int64_t, int64_t>{3, 17},
                                         std::pair<int64_t, int64_t>{51, 65}));

TEST(CrossEntropy, WithoutGradientLogitsStay) {
    const Array logits = Array::random(20, 33, 1);
    const Pass run(logits, some_targets(20, 33), false);
    EXPECT_EQ(run.logits.bytes(), logits.bytes());
    EXPECT_EQ(run.losses.bytes(), Pass(logits, some_targets(20, 33)).losses.bytes());
}

TEST(CrossEntropy, NegativeTargetCountsNothing) {
    const Pass run(Array::of({1, 2, std::nan(""), 4, 5, 6}, 2, 3), {-100, 0});
    EXPECT_EQ(run.losses[0], 0);
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(run.logits[i], 0);
    EXPECT_GT(run.losses[1], 0);
}

TEST(CrossEntropy, ExtremeLogits) {
    const Pass run(Array::of({1e4, -1e4, 0, 1e4, -1e4, 0, 1e4, 1e4, -1e4}, 3, 3), {0, 1, 1});
    expect_close(run.losses, {0, 2e4, std::log(2.0)}, 1e-6, "loss");
    expect_close(run.logits, {0, 0, 0, kScale, -kScale, 0, kScale / 2, -kScale / 2, 0}, 1e-6, "gradient");
}

/// Wherever the bad logit lies: at the target, before it, or far behind.
TEST(CrossEntropy, NonFiniteLogitMakesTheLossNan) {
    for (double bad : {std::nan(""), double(INFINITY)})
        for (int64_t at : {0, 4, 40}) {
            Array logits = Array::random(1, 41, 1);
            logits.set(at, bad);
            EXPECT_TRUE(std::isnan(Pass(logits, {4}).losses[0])) << bad << " at " << at;
        }
}

TEST(CrossEntropy, RefusesTargetsBeyondTheVocabulary) {
    EXPECT_THROW(Pass(Array::random(2, 3, 1), {0, 3}), Error);
}

TEST(CrossEntropy, AddLossAccumulates) {
    Array losses = Array::of({1, 2, 3.5}, 3, 1);
    float total = 10;
    OpContext ctx;
    cpu::add_loss(ctx, &total, losses, 0.5f);
    EXPECT_EQ(total, 13.25f);
    losses.set(1, std::nan(""));
    cpu::add_loss(ctx, &total, losses, 0.5f);
    EXPECT_TRUE(std::isnan(total));
}

TEST(CrossEntropy, ThreadsDoNotChangeBits) {
    const Array logits = Array::random(100, 65, 1, Dtype::bf16);
    expect_same_bits_on_two_threads([&] {
        const Pass run(logits, some_targets(100, 65));
        return std::vector<Array>{run.losses, run.logits};
    });
}

}  // namespace
}  // namespace q2::test
