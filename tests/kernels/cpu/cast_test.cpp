#include <limits>

#include "tests/kernels/cpu/op_test.h"

namespace q2::test {
namespace {

Array converted(Array in, int64_t rows, int64_t cols, Dtype dtype) {
    Array out(rows, cols, dtype);
    OpContext ctx;
    cpu::cast(ctx, out, in);
    return out;
}

TEST(Cast, RoundsToNearestEven) {
    const double ulp = 0x1p-7;
    const Array in = Array::of({1, 1 + ulp / 2, 1 + ulp * 3 / 2, 1 + ulp * 0.501, -3e38, 1e-40}, 2, 3);
    const Array out = converted(in, 2, 3, Dtype::bf16);
    const Values want = {1, 1, 1 + 2 * ulp, 1 + ulp};
    for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(out[int64_t(i)], want[i]) << i;
    for (int64_t i = 0; i < in.size(); ++i)
        EXPECT_LE(std::abs(out[i] - in[i]), 0x1p-8 * std::abs(in[i]) + 1e-40) << i;
}

TEST(Cast, EveryPairOfTypes) {
    const Array in = Array::random(301, 67, 1);  // values that bfloat16 holds, in two chunks
    for (Dtype from : {Dtype::f32, Dtype::bf16})
        for (Dtype to : {Dtype::f32, Dtype::bf16})
            EXPECT_EQ(converted(in.as(from), 301, 67, to).bytes(), in.as(to).bytes());
}

TEST(Cast, KeepsNonFiniteValues) {
    const double inf = std::numeric_limits<double>::infinity();
    const Array out = converted(Array::of({std::nan(""), inf, -inf}, 1, 3), 1, 3, Dtype::bf16);
    EXPECT_TRUE(std::isnan(out[0]));
    EXPECT_EQ(out[1], inf);
    EXPECT_EQ(out[2], -inf);
}

TEST(Cast, RefusesAnotherShapeOrType) {
    const Array in = Array::random(3, 4, 1);
    EXPECT_THROW(converted(in, 4, 3, Dtype::f32), Error);
    EXPECT_THROW(converted(in, 3, 4, Dtype::i32), Error);
}

TEST(CountNonFinite, CountsEachKind) {
    for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
        Array x = Array::random(301, 67, 1, dtype);
        OpContext ctx;
        EXPECT_EQ(cpu::count_non_finite(ctx, x), 0);
        x.set(0, std::nan(""));
        x.set(20000, std::numeric_limits<double>::infinity());
        x.set(301 * 67 - 1, -std::numeric_limits<double>::infinity());
        EXPECT_EQ(cpu::count_non_finite(ctx, x), 3);
        EXPECT_EQ(cpu::count_non_finite(ctx, Array(5, 7, dtype)), 35);
    }
}

}  // namespace
}  // namespace q2::test
