#include "kernels/cpu/vector_math.h"

#include "tests/kernels/cpu/op_test.h"

namespace q2::test {
namespace {

TEST(VectorExp, WithinTwoUlp) {
    for (double x = -87.2; x < 88.2; x += 0.00137) {
        const double want = std::exp(double(float(x)));
        ASSERT_LE(std::abs(cpu::vector_exp(float(x)) - want), 2 * 0x1p-23 * want) << x;
    }
    EXPECT_EQ(cpu::vector_exp(0.0f), 1.0f);
}

TEST(VectorExp, Ends) {
    EXPECT_EQ(cpu::vector_exp(-88.0f), 0.0f);
    EXPECT_EQ(cpu::vector_exp(-1e30f), 0.0f);
    EXPECT_EQ(cpu::vector_exp(-INFINITY), 0.0f);
    EXPECT_EQ(cpu::vector_exp(89.0f), INFINITY);
    EXPECT_EQ(cpu::vector_exp(1e30f), INFINITY);
    EXPECT_EQ(cpu::vector_exp(INFINITY), INFINITY);
    EXPECT_TRUE(std::isnan(cpu::vector_exp(NAN)));
}

TEST(RaiseAmax, KeepsTheLargestAndNanWins) {
    Amax amax{7};
    cpu::clear_amax(&amax);
    for (float x : {1.0f, 3.0f, 2.0f}) cpu::raise_amax(&amax, magnitude_bits(x));
    EXPECT_EQ(float_of(amax.bits), 3.0f);
    cpu::raise_amax(&amax, magnitude_bits(NAN));
    cpu::raise_amax(&amax, magnitude_bits(INFINITY));
    EXPECT_TRUE(std::isnan(float_of(amax.bits)));
    cpu::raise_amax(nullptr, 1);
}

}  // namespace
}  // namespace q2::test
