#include "train/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace q2 {
namespace {

std::vector<int64_t> shuffle(int64_t size, uint64_t seed, uint64_t epoch) {
    const Permutation permutation(size, seed, epoch);
    std::vector<int64_t> order;
    for (int64_t i = 0; i < size; ++i) order.push_back(permutation(i));
    return order;
}

void expect_bijection(int64_t size, uint64_t seed, uint64_t epoch) {
    std::vector<bool> seen(size_t(size), false);
    for (const int64_t at : shuffle(size, seed, epoch)) {
        ASSERT_TRUE(at >= 0 && at < size && !seen[size_t(at)]) << at << " of " << size;
        seen[size_t(at)] = true;
    }
}

TEST(Permutation, IsABijection) {
    for (int64_t size = 1; size <= 1000; ++size) expect_bijection(size, 7, uint64_t(size) % 3);
    for (const int64_t size : {4095, 4096, 4097, 65537, 1'000'003}) expect_bijection(size, 1, 0);
}

TEST(Permutation, ReachesBeyond32Bits) {
    const int64_t size = (int64_t(1) << 40) + 12345;
    const Permutation permutation(size, 3, 0);
    std::set<int64_t> seen;
    int64_t beyond = 0;
    for (int64_t i = 0; i < 10000; ++i) {
        const int64_t at = permutation(size - 1 - i);
        ASSERT_TRUE(at >= 0 && at < size);
        beyond += at >= int64_t(1) << 32;
        seen.insert(at);
    }
    EXPECT_EQ(seen.size(), 10000u);
    EXPECT_GT(beyond, 9900);
}

TEST(Permutation, DependsOnEveryBitOfSeedAndEpoch) {
    const auto base = shuffle(500, 5, 0);
    EXPECT_EQ(base, shuffle(500, 5, 0));
    for (int bit = 0; bit < 64; ++bit) EXPECT_NE(base, shuffle(500, 5 ^ uint64_t(1) << bit, 0)) << bit;
    std::set<std::vector<int64_t>> epochs;
    for (uint64_t epoch = 0; epoch < 50; ++epoch) epochs.insert(shuffle(500, 5, epoch));
    epochs.insert(shuffle(500, 5, uint64_t(1) << 32));
    EXPECT_EQ(epochs.size(), 51u);
}

// Over many seeds each position takes each value alike often: chi squared per degree of freedom near 1.
TEST(Permutation, HasNoPreferredPlaces) {
    constexpr int kSize = 11, kSeeds = 20000;
    double chi_squared = 0;
    std::vector<int> count(kSize * kSize);
    for (int seed = 0; seed < kSeeds; ++seed) {
        const auto order = shuffle(kSize, uint64_t(seed), 0);
        for (int i = 0; i < kSize; ++i) ++count[size_t(i * kSize + order[size_t(i)])];
    }
    const double expected = double(kSeeds) / kSize;
    for (const int n : count) chi_squared += (n - expected) * (n - expected) / expected;
    // 100 degrees of freedom: mean 100, standard deviation 14.
    EXPECT_LT(chi_squared, 170);
    EXPECT_GT(chi_squared, 50);
}

}  // namespace
}  // namespace q2
