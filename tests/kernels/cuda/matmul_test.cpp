// Products on the GPU against the CPU: shapes, types, orders of storage, accumulation, tensor scales.
#include <algorithm>

#include "tests/support/both_backends.h"

namespace q2::test {
namespace {

struct Case {
    int64_t rows, cols, inner;
    bool a_transposed = false, b_transposed = false, accumulate = false;
};

class CudaMatmul : public BothBackends {
  protected:
    /// float32 sums of `inner` products in another order; tensor cores truncate where the CPU rounds.
    static double tolerance(Dtype out, int64_t inner) {
        return out == Dtype::f32 ? 2e-5 + 2e-7 * double(inner) : 1e-2;
    }

    void check(Dtype in, Dtype out_type, const Case& c) {
        const Floats a = normals(c.rows * c.inner), b = normals(c.cols * c.inner);
        const Floats before = normals(c.rows * c.cols);
        compare(concat(c.rows, " x ", c.cols, " x ", c.inner), tolerance(out_type, c.inner),
                [&](Context& ctx) {
                    const LentScratch scratch(ctx, ctx.ops->matmul_scratch(c.rows, c.cols, c.inner));
                    const auto stored = [&](const Floats& values, int64_t rows, bool transposed) {
                        return transposed ? tensor_of(ctx, in, c.inner, rows, values)
                                          : tensor_of(ctx, in, rows, c.inner, values);
                    };
                    const DeviceTensor left = stored(a, c.rows, c.a_transposed);
                    const DeviceTensor right = stored(b, c.cols, c.b_transposed);
                    const DeviceTensor out = c.accumulate ? tensor_of(ctx, out_type, c.rows, c.cols, before)
                                                          : DeviceTensor(ctx, out_type, c.rows, c.cols);
                    ctx.ops->matmul(ctx, out, {.dense = left, .transposed = c.a_transposed},
                                    {.dense = right, .transposed = c.b_transposed}, c.accumulate);
                    return std::vector<Floats>{out.floats()};
                });
    }
};

TEST_F(CudaMatmul, EqualsTheCpu) {
    for (const bool a_transposed : {false, true})
        for (const bool b_transposed : {false, true})
            for (const Case& shape :
                 {Case{1, 64, 128}, Case{3, 48, 16}, Case{511, 640, 384}, Case{17, 1001, 64}}) {
                Case c = shape;
                c.a_transposed = a_transposed;
                c.b_transposed = b_transposed;
                check(Dtype::bf16, Dtype::bf16, c);
                check(Dtype::bf16, Dtype::f32, c);
                check(Dtype::f32, Dtype::f32, c);
                c.accumulate = true;
                check(Dtype::bf16, Dtype::f32, c);
                check(Dtype::f32, Dtype::f32, c);
            }
}

/// alpha is the product of the quantised operands' tensor scales, wherever they are.
TEST_F(CudaMatmul, AppliesTensorScales) {
    const int64_t rows = 33, cols = 64, inner = 128;
    const Floats a = normals(rows * inner), b = normals(cols * inner);
    for (const bool a_quantised : {false, true})
        for (const bool b_quantised : {false, true})
            compare("tensor scales", tolerance(Dtype::f32, inner), [&](Context& ctx) {
                const LentScratch scratch(ctx, ctx.ops->matmul_scratch(rows, cols, inner));
                const DeviceTensor left = tensor_of(ctx, Dtype::bf16, rows, inner, a);
                const DeviceTensor right = tensor_of(ctx, Dtype::bf16, cols, inner, b);
                const DeviceTensor left_scale(ctx, 1, 1, Floats{0.75f}), right_scale(ctx, 1, 1, Floats{0.3f});
                const DeviceTensor out(ctx, Dtype::f32, rows, cols);
                Quantized qa{.rows = rows, .inner = inner}, qb{.rows = cols, .inner = inner};
                qa.tensor_scale = left_scale;
                qa.dense = left;
                qb.tensor_scale = right_scale;
                qb.dense = right;
                ctx.ops->matmul(ctx, out, a_quantised ? Operand{.q = &qa} : Operand{.dense = left},
                                b_quantised ? Operand{.q = &qb} : Operand{.dense = right}, false);
                return std::vector<Floats>{out.floats()};
            });
}

/// A timed choice computes the same product, and another context that is told of it gets the same bits.
TEST_F(CudaMatmul, ChoicesCarryOver) {
    cuda().ops->time_matmuls(cuda(), true);
    check(Dtype::bf16, Dtype::f32, {.rows = 640, .cols = 384, .inner = 4096, .accumulate = true});
    check(Dtype::bf16, Dtype::bf16, {.rows = 2048, .cols = 640, .inner = 1792, .b_transposed = true});
    const std::vector<MatmulChoice> choices = cuda().ops->matmul_choices(cuda());
    ASSERT_EQ(choices.size(), 2u);
    std::string why;
    const auto other = open_backend("cuda", &why);
    ASSERT_TRUE(other) << why;
    Context& ctx = other->context();
    ctx.ops->choose_matmuls(ctx, choices);
    const auto product = [&](Context& on) {
        const LentScratch scratch(on, on.ops->matmul_scratch(640, 384, 4096));
        const DeviceTensor a(on, 640, 4096, std::vector<Bf16>(640 * 4096, to_bf16(0.3f)));
        const DeviceTensor b(on, 384, 4096, std::vector<Bf16>(384 * 4096, to_bf16(0.7f)));
        const DeviceTensor out(on, 640, 384, Floats(640 * 384, 1.0f));
        on.ops->matmul(on, out, {.dense = a}, {.dense = b}, true);
        return out.floats();
    };
    EXPECT_EQ(product(ctx), product(cuda()));
    const std::vector<MatmulChoice> taken = ctx.ops->matmul_choices(ctx);
    ASSERT_EQ(taken.size(), 1u);
    const auto same = std::find_if(choices.begin(), choices.end(),
                                   [&](const MatmulChoice& c) { return c.product == taken[0].product; });
    ASSERT_NE(same, choices.end());
    EXPECT_EQ(taken[0].algorithm, same->algorithm);

    std::vector<MatmulChoice> broken = choices;
    for (MatmulChoice& c : broken) c.algorithm.fill(~uint64_t(0));
    ctx.ops->choose_matmuls(ctx, broken);
    EXPECT_THROW(product(ctx), Error);
}

TEST_F(CudaMatmul, RefusesWhatItCannotMultiply) {
    const LentScratch scratch(cuda(), cuda().ops->matmul_scratch(16, 16, 16));
    const DeviceTensor f32(cuda(), Dtype::f32, 16, 16), bf16(cuda(), Dtype::bf16, 16, 16);
    const DeviceTensor narrow(cuda(), Dtype::f32, 16, 8);
    const auto matmul = [&](const DeviceTensor& out, const DeviceTensor& a, const DeviceTensor& b, bool add) {
        cuda().ops->matmul(cuda(), out, {.dense = a}, {.dense = b}, add);
    };
    EXPECT_THROW(matmul(f32, f32, bf16, false), Error);
    EXPECT_THROW(matmul(bf16, f32, f32, false), Error);
    EXPECT_THROW(matmul(bf16, bf16, bf16, true), Error);
    EXPECT_THROW(matmul(f32, f32, narrow, false), Error);
}

}  // namespace
}  // namespace q2::test
