// The parts of the block quantisers that no whole operand shows: packing, tensor scales, and edges of scales.
#include "base/nvfp4.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace q2 {
namespace {

const float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::nanf("");

TEST(PackedCodes, PutTheEvenElementIntoTheLowNibble) {
    int codes[kBlock];
    for (int i = 0; i < kBlock; ++i) codes[i] = (i * 7 + 3) % 16;
    const PackedCodes packed = pack_codes(codes);
    uint8_t bytes[8];
    std::memcpy(bytes, &packed, sizeof bytes);
    for (int i = 0; i < kBlock; ++i) {
        EXPECT_EQ((bytes[i / 2] >> (i % 2 * 4)) & 15, codes[i]) << i;
        EXPECT_EQ(unpack_code(packed, i), codes[i]) << i;
    }
}

TEST(TensorScale, IsAmaxOverTheLargestProduct) {
    EXPECT_EQ(tensor_scale(2688.0f, kTop, scale_limit(Rule::six)), 1.0f);
    for (const Rule rule : {Rule::mse, Rule::mae, Rule::absmax, Rule::search})
        EXPECT_EQ(tensor_scale(1536.0f, kTop, scale_limit(rule)), 1.0f);
    EXPECT_EQ(tensor_scale(3.0f, kTopStochastic, 448), 3.0f / (kTopStochastic * 448.0f));
}

TEST(TensorScale, IsOneForWhatVanishesAndPassesNansOn) {
    EXPECT_EQ(tensor_scale(0.0f, kTop, 448), 1.0f);
    EXPECT_EQ(tensor_scale(std::nextafter(0x1p-100f, 0.0f), kTop, 448), 1.0f);
    EXPECT_EQ(tensor_scale(0x1p-100f, kTop, 448), 0x1p-100f / 2688.0f);
    EXPECT_TRUE(std::isnan(tensor_scale(kNan, kTop, 448)));
    EXPECT_TRUE(std::isinf(tensor_scale(kInfinity, kTop, 448)));
    EXPECT_EQ(post_hoc_tensor_scale(0.0f), 1.0f);
    EXPECT_TRUE(std::isnan(post_hoc_tensor_scale(kNan)));
}

TEST(BlockAmax, SeesSignsAndPrefersNans) {
    float x[kBlock] = {1, -5, 3};
    EXPECT_EQ(block_amax(x), 5.0f);
    x[9] = -kInfinity;
    EXPECT_EQ(block_amax(x), kInfinity);
    x[3] = kNan;
    EXPECT_TRUE(std::isnan(block_amax(x)));
}

TEST(CandidateScale, StepsStayBetweenZeroAndTheLargestCode) {
    EXPECT_EQ(candidate_scale(448.0f * 6, 1.0f, {6, 0}), 126);
    EXPECT_EQ(candidate_scale(448.0f * 6, 1.0f, {6, 1}), 126);  // 0x7f is a NaN
    EXPECT_EQ(candidate_scale(448.0f * 6, 1.0f, {6, -1}), 125);
    EXPECT_EQ(candidate_scale(0.0f, 1.0f, {6, -1}), 0);
    EXPECT_EQ(candidate_scale(kNan, 1.0f, {4, 1}), 126);
    EXPECT_EQ(candidate_scale(12.0f, 2.0f, {6, 0}), e4m3_rn(1.0f));
    EXPECT_EQ(scale_reciprocal(0, 1.0f), 0.0f);
    EXPECT_EQ(scale_reciprocal(e4m3_rn(2.0f), 0.25f), 2.0f);
}

TEST(QuantizeBlock, AVanishingScaleLeavesSignedZeros) {
    float x[1][kBlock];
    for (int i = 0; i < kBlock; ++i) x[0][i] = i % 2 ? -1e-9f : 1e-9f;
    int codes[1][kBlock];
    EXPECT_EQ(quantize_block<1>(x, 1.0f, nearest_candidates(Rule::six), Rule::six, NearestCodes{}, codes), 0);
    for (int i = 0; i < kBlock; ++i) EXPECT_EQ(codes[0][i], i % 2 ? 8 : 0) << i;
}

TEST(QuantizeBlock, ANanKeepsTheFirstCandidate) {
    float x[1][kBlock] = {{1, 2, kNan, 4}};
    for (const Rule rule : {Rule::mse, Rule::mae, Rule::absmax, Rule::search}) {
        int codes[1][kBlock];
        for (int& code : codes[0]) code = -1;
        const uint8_t scale =
            quantize_block<1>(x, kNan, nearest_candidates(rule), rule, NearestCodes{}, codes);
        EXPECT_EQ(scale, candidate_scale(kNan, kNan, {6, 0}));
        for (const int code : codes[0]) EXPECT_TRUE(code >= 0 && code < 16) << code;
    }
}

// Equal errors: 4/6 keeps 6. Here both candidates are exact.
TEST(QuantizeBlock, ALaterCandidateMustBeStrictlyBetter) {
    float x[1][kBlock] = {{6, 3, -6, 0}};
    int codes[1][kBlock];
    EXPECT_EQ(quantize_block<1>(x, 1.0f, nearest_candidates(Rule::mse), Rule::mse, NearestCodes{}, codes),
              e4m3_rn(1.0f));
    x[0][3] = 4.5f;  // 3/4 of the largest: only the scale 1.5 holds it
    EXPECT_EQ(quantize_block<1>(x, 1.0f, nearest_candidates(Rule::mse), Rule::mse, NearestCodes{}, codes),
              e4m3_rn(1.5f));
}

TEST(EdenPseudoScale, KeepsFourMantissaBits) {
    for (float amax = 1e-6f; amax < 1e6f; amax *= 1.37f) {
        const float pseudo = eden_pseudo_scale(amax);
        EXPECT_EQ(bits_of(pseudo) & 0x7ffffu, 0u);
        EXPECT_LE(pseudo, amax / kTopEden * (1 + 1e-6f));
        EXPECT_GT(pseudo, amax / kTopEden * (1 - 1.0f / 16 - 1e-6f));
    }
    EXPECT_EQ(eden_pseudo_scale(0x1p-99f), 0.0f);  // 2^-99 / 6.07 is below 2^-100
}

TEST(EdenCorrection, IsOneWithoutCodes) {
    EXPECT_EQ(eden_correction({0.5f, 0.0f}), 1.0f);
    EXPECT_EQ(eden_correction({3.0f, 2.0f}), 1.5f);
}

}  // namespace
}  // namespace q2
