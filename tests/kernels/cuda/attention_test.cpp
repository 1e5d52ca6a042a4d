// Attention on the GPU against the CPU, both directions.
#include "tests/support/both_backends.h"

namespace q2::test {
namespace {

class CudaAttention : public BothBackends {
  protected:
    void check(Dtype dtype, const AttentionShape& s) {
        const int64_t tokens = s.tokens();
        const Floats qkv = normals(tokens * s.qkv_width()), d = normals(tokens * s.out_width());
        const double tolerance = dtype == Dtype::f32 ? 5e-5 : 2e-2;
        compare(concat(s.batch, " x ", s.sequence, ", heads ", s.heads, "/", s.kv_heads, " of ", s.head_size),
                tolerance, [&](Context& ctx) {
                    const LentScratch scratch(ctx, ctx.ops->attention_scratch(s));
                    const DeviceTensor in = tensor_of(ctx, dtype, tokens, s.qkv_width(), qkv);
                    const DeviceTensor dout = tensor_of(ctx, dtype, tokens, s.out_width(), d);
                    const DeviceTensor out(ctx, dtype, tokens, s.out_width());
                    const DeviceTensor lse(ctx, Dtype::f32, s.heads * s.batch, s.sequence);
                    const DeviceTensor din(ctx, dtype, tokens, s.qkv_width());
                    const DeviceAmax amax(ctx);
                    ctx.ops->attention_forward(ctx, out, lse, in, s, amax.get());
                    EXPECT_EQ(amax.bits(), amax_bits(out.floats()));
                    ctx.ops->attention_backward(ctx, din, dout, out, lse, in, s);
                    return std::vector<Floats>{out.floats(), lse.floats(), din.floats()};
                });
    }
};

TEST_F(CudaAttention, EqualsTheCpu) {
    const AttentionShape shapes[] = {{1, 1, 1, 1, 16},    {3, 17, 4, 2, 32},   {1, 511, 2, 1, 64},
                                     {2, 130, 2, 2, 128}, {1, 100, 3, 1, 80},  {1, 64, 2, 2, 128},
                                     {3, 65, 1, 1, 8},    {1, 129, 2, 1, 256}, {2, 40, 2, 2, 192},
                                     {3, 1, 2, 1, 64},    {2, 17, 6, 2, 64},   {2, 511, 4, 2, 128},
                                     {1, 1, 1, 1, 128},   {1, 640, 3, 1, 64},  {2, 1024, 4, 1, 128}};
    for (const AttentionShape& shape : shapes)
        for (const Dtype dtype : kFloatTypes) check(dtype, shape);
}

}  // namespace
}  // namespace q2::test
