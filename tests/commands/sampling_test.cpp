#include "commands/sampling.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

#include "base/check.h"
#include "base/rng.h"

namespace q2 {
namespace {

const std::vector<float> kLogits = {std::log(1.0f), std::log(4.0f), std::log(2.0f), std::log(3.0f)};

/// Tokens that a sweep of u over [0, 1) can give.
std::set<int32_t> reachable(const std::vector<float>& logits, const SamplingOptions& options) {
    std::set<int32_t> tokens;
    for (int i = 0; i < 4096; ++i) tokens.insert(sample_token(logits, options, float(i) / 4096));
    return tokens;
}

/// Pearson's statistic of n draws against the expected shares.
double chi_square(const std::vector<float>& logits, const SamplingOptions& options,
                  const std::vector<double>& shares) {
    constexpr int n = 100000;
    const DrawStream stream = {1, 0, uint32_t(Stream::sampling), 0};
    std::vector<int> counts(shares.size());
    for (int i = 0; i < n; ++i)
        ++counts[size_t(sample_token(logits, options, stream.uniform(uint64_t(i), 0)))];
    double statistic = 0;
    for (size_t i = 0; i < shares.size(); ++i) {
        const double expected = n * shares[i];
        if (expected == 0)
            EXPECT_EQ(counts[i], 0) << i;
        else
            statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    return statistic;
}

// 16.27 is the 0.999 quantile at 3 degrees of freedom; the draws are fixed by their address.
TEST(Sampling, FrequenciesFollowTheSoftmax) {
    EXPECT_LT(chi_square(kLogits, {}, {0.1, 0.4, 0.2, 0.3}), 16.27);
}

TEST(Sampling, TemperatureSharpens) {
    EXPECT_LT(chi_square(kLogits, {0.5, 0, 1}, {1 / 30., 16 / 30., 4 / 30., 9 / 30.}), 16.27);
}

TEST(Sampling, TopKThenTopP) {
    EXPECT_LT(chi_square(kLogits, {1, 2, 1}, {0, 4 / 7., 0, 3 / 7.}), 16.27);
    EXPECT_LT(chi_square(kLogits, {1, 0, 0.75}, {0, 4 / 9., 2 / 9., 3 / 9.}), 16.27);
    // 4/7 of what top-k left already reaches 0.5, though it is only 0.4 of the whole.
    EXPECT_EQ(reachable(kLogits, {1, 2, 0.5}), (std::set<int32_t>{1}));
    EXPECT_EQ(reachable(kLogits, {1, 0, 0.5}), (std::set<int32_t>{1, 3}));
}

TEST(Sampling, ExtremesOfTheOptions) {
    EXPECT_EQ(reachable(kLogits, {0, 0, 1}), (std::set<int32_t>{1}));
    EXPECT_EQ(reachable(kLogits, {1, 1, 1}), (std::set<int32_t>{1}));
    EXPECT_EQ(reachable(kLogits, {1, 0, 1e-9}), (std::set<int32_t>{1}));
    EXPECT_EQ(reachable(kLogits, {1, 99, 1}).size(), 4u);
    EXPECT_EQ(reachable(kLogits, {1e-6, 0, 1}), (std::set<int32_t>{1}));
    EXPECT_EQ(reachable({5}, {}), (std::set<int32_t>{0}));
}

TEST(Sampling, TiesGoToTheSmallerId) {
    EXPECT_EQ(reachable({1, 2, 2, 2}, {0, 0, 1}), (std::set<int32_t>{1}));
    EXPECT_EQ(reachable({1, 2, 2, 2}, {1, 2, 1}), (std::set<int32_t>{1, 2}));
}

TEST(Sampling, HugeAndMaskedLogits) {
    EXPECT_EQ(reachable({1e30f, -1e30f, -INFINITY}, {}), (std::set<int32_t>{0}));
    EXPECT_EQ(reachable({-INFINITY, 0, -INFINITY, 0}, {}), (std::set<int32_t>{1, 3}));
    // The largest u below 1 must not fall off the end onto a masked token.
    EXPECT_EQ(sample_token(std::vector<float>{0, 0, -INFINITY}, {}, 0x1.fffffep-1f), 1);
}

Exit code_of(const std::vector<float>& logits, const SamplingOptions& options) {
    try {
        sample_token(logits, options, 0.5f);
    } catch (const Error& e) {
        return e.code;
    }
    return Exit::ok;
}

TEST(Sampling, BadInputIsRefused) {
    for (const double temperature : {0.0, 1.0}) {
        EXPECT_EQ(code_of({0, NAN, 1}, {temperature, 0, 1}), Exit::non_finite);
        EXPECT_EQ(code_of({NAN, 0, 1}, {temperature, 1, 1}), Exit::non_finite);
        EXPECT_EQ(code_of({0, INFINITY}, {temperature, 0, 1}), Exit::non_finite);
        EXPECT_EQ(code_of({-INFINITY, -INFINITY}, {temperature, 0, 1}), Exit::non_finite);
    }
    EXPECT_EQ(code_of({0}, {-1, 0, 1}), Exit::usage);
    EXPECT_EQ(code_of({0}, {NAN, 0, 1}), Exit::usage);
    EXPECT_EQ(code_of({0}, {1, -1, 1}), Exit::usage);
    EXPECT_EQ(code_of({0}, {1, 0, 0}), Exit::usage);
    EXPECT_EQ(code_of({0}, {1, 0, 1.5}), Exit::usage);
}

}  // namespace
}  // namespace q2
