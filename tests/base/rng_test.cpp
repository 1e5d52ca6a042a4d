// Philox against its published vectors, and the table of addresses of docs/NUMERICS.md section 2.
#include "base/rng.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace q2 {
namespace {

using Words = std::array<uint32_t, 4>;

Words words_of(const PhiloxWords& w) { return {w.word[0], w.word[1], w.word[2], w.word[3]}; }

// The known answers of Random123 (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, GivesThePublishedVectors) {
    EXPECT_EQ(words_of(philox(0, 0, 0, 0, 0, 0)), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    const uint32_t ones = 0xffffffff;
    EXPECT_EQ(words_of(philox(ones, ones, ones, ones, ones, ones)),
              (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    EXPECT_EQ(words_of(philox(0xa4093822, 0x299f31d0, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344)),
              (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Draws, FollowTheTableOfAddresses) {
    const uint64_t seed = 0x0123456789abcdefull, position = 4ull * 0x1234567 + 2;
    const DrawStream stream = draw_stream(seed, 77, 5, 9, 2, 1, Purpose::signs2);
    const PhiloxWords want =
        philox(0x89abcdef, 0x01234567 + 5, 0x1234567, 31, ((9 * 3 + 2) * 2 + 1) * 4 + 2, 77);
    EXPECT_EQ(stream.word(position, 31), want.word[2]);
    EXPECT_EQ(words_of(stream.words(position, 31)), words_of(want));
    EXPECT_EQ(stream.uniform(position, 31), float(want.word[2] >> 8) * 0x1p-24f);
}

TEST(Draws, NoTwoShareAnAddress) {
    std::set<std::array<uint32_t, 4>> seen;
    size_t streams = 0;
    for (const uint64_t seed : {0ull, 1ull, 5ull << 32})
        for (uint32_t step = 0; step < 3; ++step)
            for (uint32_t micro_batch = 0; micro_batch < 5; ++micro_batch)
                for (uint32_t layer = 0; layer < 5; ++layer)
                    for (uint32_t gemm = 0; gemm < 3; ++gemm)
                        for (uint32_t operand = 0; operand < 2; ++operand)
                            for (const Purpose p : {Purpose::rounding, Purpose::signs, Purpose::signs2}) {
                                const DrawStream s =
                                    draw_stream(seed, step, micro_batch, layer, gemm, operand, p);
                                seen.insert({s.key0, s.key1, s.counter2, s.counter3});
                                EXPECT_LT(s.counter2, uint32_t(Stream::weights));
                                ++streams;
                            }
    EXPECT_EQ(seen.size(), streams);
}

TEST(Draws, UniformsAndSignsCoverTheirRanges) {
    EXPECT_EQ(uniform_of(0), 0.0f);
    EXPECT_EQ(uniform_of(0xffffffff), 1.0f - 0x1p-24f);
    EXPECT_EQ(sign_of(0x7fffffff), 1.0f);
    EXPECT_EQ(sign_of(0x80000000), -1.0f);
}

TEST(Draws, AreUniform) {
    const DrawStream stream = draw_stream(3, 1, 0, 2, 1, 0, Purpose::rounding);
    constexpr int kDraws = 1 << 18, kBins = 64;
    std::array<int, kBins> bins{};
    int signs = 0;
    for (int i = 0; i < kDraws; ++i) {
        const uint32_t word = stream.word(uint64_t(i % 512), uint32_t(i / 512));
        ++bins[size_t(uniform_of(word) * kBins)];
        signs += sign_of(word) > 0;
    }
    const double expected = double(kDraws) / kBins;
    double chi_squared = 0;
    for (const int n : bins) chi_squared += (n - expected) * (n - expected) / expected;
    EXPECT_LT(chi_squared, 63 + 5 * 11.2);  // 63 degrees of freedom, standard deviation 11.2
    EXPECT_NEAR(signs, kDraws / 2, 5 * 256);
}

}  // namespace
}  // namespace q2
