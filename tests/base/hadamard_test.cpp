// The randomised Hadamard transform against its matrix, and what a product needs of it.
#include "base/hadamard.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace q2 {
namespace {

template <int N>
struct Size {
    static constexpr int value = N;
};

template <class S>
class Hadamard : public testing::Test {
  protected:
    static constexpr int N = S::value;
    using Run = std::vector<float>;

    Run normals() {
        std::normal_distribution<float> normal;
        Run x(N);
        for (float& v : x) v = normal(generator_);
        return x;
    }
    Run signs() {
        Run s(N);
        for (float& v : s) v = generator_() % 2 ? 1.0f : -1.0f;
        return s;
    }
    static Run rotated(Run x, const Run& signs) {
        hadamard<N>(x.data(), signs.data());
        return x;
    }
    static double dot(const Run& a, const Run& b) {
        double sum = 0;
        for (int i = 0; i < N; ++i) sum += double(a[i]) * b[i];
        return sum;
    }

  private:
    std::mt19937 generator_{7};
};

using Sizes = testing::Types<Size<16>, Size<32>, Size<64>, Size<128>>;
TYPED_TEST_SUITE(Hadamard, Sizes);

TYPED_TEST(Hadamard, ScaleIsTheFloatNearestToOneOverTheRoot) {
    constexpr int n = TypeParam::value;
    EXPECT_EQ(hadamard_scale(n), float(1 / std::sqrt(double(n))));
}

// Sylvester's matrix: H[j][i] = (-1)^popcount(i & j) / sqrt(n).
TYPED_TEST(Hadamard, IsTheMatrixTimesTheSigns) {
    constexpr int n = TypeParam::value;
    const auto x = this->normals(), s = this->signs(), got = this->rotated(x, s);
    for (int j = 0; j < n; ++j) {
        double want = 0;
        for (int i = 0; i < n; ++i)
            want += (std::popcount(unsigned(i & j)) % 2 ? -1.0 : 1.0) * double(s[i]) * x[i];
        ASSERT_NEAR(got[j], want / std::sqrt(double(n)), 1e-5) << j;
    }
}

TYPED_TEST(Hadamard, KeepsEnergyAndIsItsOwnInverse) {
    constexpr int n = TypeParam::value;
    const std::vector<float> ones(n, 1.0f);
    const auto x = this->normals(), s = this->signs(), y = this->rotated(x, s);
    EXPECT_NEAR(this->dot(y, y) / this->dot(x, x), 1.0, 1e-6);
    const auto back = this->rotated(y, ones);  // H is symmetric and orthogonal; the signs undo themselves
    for (int i = 0; i < n; ++i) ASSERT_NEAR(back[i] * s[i], x[i], 1e-5) << i;
}

TYPED_TEST(Hadamard, CancelsInAProductOfTwoRotatedVectors) {
    const auto a = this->normals(), b = this->normals(), s = this->signs(), s2 = this->signs();
    EXPECT_NEAR(this->dot(this->rotated(a, s), this->rotated(b, s)), this->dot(a, b), 1e-4);
    EXPECT_NEAR(this->dot(this->rotated(this->rotated(a, s), s2), this->rotated(this->rotated(b, s), s2)),
                this->dot(a, b), 1e-4);
}

TYPED_TEST(Hadamard, InterleavedRunsGetTheSameBits) {
    constexpr int n = TypeParam::value, lanes = 4;
    const auto s = this->signs();
    std::vector<float> runs[lanes], together(n * lanes);
    for (int l = 0; l < lanes; ++l) {
        runs[l] = this->normals();
        for (int i = 0; i < n; ++i) together[i * lanes + l] = runs[l][i];
    }
    hadamard<n, lanes>(together.data(), s.data());
    for (int l = 0; l < lanes; ++l) {
        const auto alone = this->rotated(runs[l], s);
        for (int i = 0; i < n; ++i) ASSERT_EQ(together[i * lanes + l], alone[i]) << l << ", " << i;
    }
}

}  // namespace
}  // namespace q2
