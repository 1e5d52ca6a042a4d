// cast, count_non_finite, rope and SwiGLU on the GPU against the CPU.
#include <cmath>
#include <limits>

#include "tests/support/both_backends.h"

namespace q2::test {
namespace {

class CudaCast : public BothBackends {};

TEST_F(CudaCast, EqualsTheCpu) {
    for (const Dtype from : kFloatTypes)
        for (const Dtype to : kFloatTypes)
            for (const int64_t cols : {1, 17, 640, 50257}) {
                Floats x = normals(3 * cols);
                for (float& value : x) value *= 1.0f + 0x1p-12f;  // so that bfloat16 must round
                compare("cast", 0.0, [&](Context& ctx) {
                    const DeviceTensor in = tensor_of(ctx, from, 3, cols, x), out(ctx, to, 3, cols);
                    ctx.ops->cast(ctx, out, in);
                    return std::vector<Floats>{out.floats()};
                });
            }
}

TEST_F(CudaCast, CountsWhatIsNotFinite) {
    Floats x = normals(70001);
    x[0] = std::numeric_limits<float>::infinity();
    x[511] = -std::numeric_limits<float>::infinity();
    x[70000] = std::numeric_limits<float>::quiet_NaN();
    for (const Dtype dtype : kFloatTypes) {
        EXPECT_EQ(cuda().ops->count_non_finite(cuda(), tensor_of(cuda(), dtype, 1, 70001, x)), 3);
        EXPECT_EQ(cuda().ops->count_non_finite(cuda(), tensor_of(cuda(), dtype, 1, 100, normals(100))), 0);
    }
}

class CudaRope : public BothBackends {};

TEST_F(CudaRope, EqualsTheCpu) {
    const AttentionShape shapes[] = {
        {1, 1, 1, 1, 16}, {3, 17, 4, 2, 32}, {1, 511, 2, 1, 64}, {2, 33, 5, 5, 128}, {1, 9, 2, 1, 24}};
    for (const AttentionShape& shape : shapes)
        for (const Dtype dtype : kFloatTypes)
            for (const Direction direction : {Direction::forward, Direction::backward}) {
                const Floats qkv = normals(shape.tokens() * shape.qkv_width());
                const Floats table = normals(shape.sequence * shape.head_size);
                compare("rope", tolerance_of(dtype), [&](Context& ctx) {
                    const DeviceTensor x = tensor_of(ctx, dtype, shape.tokens(), shape.qkv_width(), qkv);
                    const DeviceTensor angles(ctx, shape.sequence, shape.head_size, table);
                    ctx.ops->rope(ctx, x, angles, shape, direction);
                    return std::vector<Floats>{x.floats()};
                });
            }
}

class CudaSwiglu : public BothBackends {};

TEST_F(CudaSwiglu, EqualsTheCpu) {
    for (const Dtype dtype : kFloatTypes)
        for (const int64_t rows : {1, 3, 511})
            for (const int64_t width : {1792, 128, 100}) {
                const Floats gate_up = normals(rows * 2 * width, 2.0f), d = normals(rows * width);
                compare("swiglu", tolerance_of(dtype), [&](Context& ctx) {
                    const DeviceTensor in = tensor_of(ctx, dtype, rows, 2 * width, gate_up);
                    const DeviceTensor dout = tensor_of(ctx, dtype, rows, width, d);
                    const DeviceTensor out(ctx, dtype, rows, width), din(ctx, dtype, rows, 2 * width);
                    const DeviceAmax amax(ctx);
                    ctx.ops->swiglu_forward(ctx, out, in, amax.get());
                    EXPECT_EQ(amax.bits(), amax_bits(out.floats()));
                    ctx.ops->swiglu_backward(ctx, din, dout, in);
                    ctx.ops->swiglu_backward(ctx, in, dout, in);  // in place
                    EXPECT_EQ(in.floats(), din.floats());
                    return std::vector<Floats>{out.floats(), din.floats()};
                });
            }
}

}  // namespace
}  // namespace q2::test
