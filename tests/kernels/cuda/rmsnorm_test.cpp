// Residual add and RMSNorm on the GPU against the CPU.
#include "tests/support/both_backends.h"

namespace q2::test {
namespace {

struct Case {
    int64_t rows, width;
    bool branch, accumulate;
};

class CudaRmsnorm : public BothBackends {
  protected:
    void check(Dtype act, Dtype res, const Case& c) {
        const int64_t size = c.rows * c.width;
        const Floats residual = normals(size), branch = normals(size), weight = normals(c.width);
        const Floats d = normals(size), before = normals(size), dweight_before = normals(c.width);
        const double tolerance = std::max(tolerance_of(act), tolerance_of(res)) * (c.rows > 100 ? 3 : 1);
        compare(
            concat(c.rows, " x ", c.width, ", ", name_of(act), ", ", name_of(res)), tolerance,
            [&](Context& ctx) {
                const auto matrix = [&](Dtype dtype, const Floats& values) {
                    return tensor_of(ctx, dtype, c.rows, c.width, values);
                };
                const LentScratch scratch(ctx, ctx.ops->residual_rmsnorm_backward_scratch(c.rows, c.width));
                const DeviceTensor s = matrix(res, residual), b = matrix(act, branch);
                const DeviceTensor w(ctx, 1, c.width, weight), dout = matrix(act, d);
                const DeviceTensor out(ctx, act, c.rows, c.width), rstd(ctx, Dtype::f32, c.rows, 1);
                const DeviceAmax amax(ctx);
                ctx.ops->residual_rmsnorm_forward(ctx, out, rstd, s, s, c.branch ? b.view() : Tensor{}, w,
                                                  1e-5f, amax.get());
                EXPECT_EQ(amax.bits(), amax_bits(out.floats()));
                const DeviceTensor dsum =
                    c.accumulate ? matrix(res, before) : DeviceTensor(ctx, res, c.rows, c.width);
                const DeviceTensor dbranch(ctx, act, c.rows, c.width);
                const DeviceTensor dweight(ctx, 1, c.width, dweight_before);
                ctx.ops->residual_rmsnorm_backward(
                    ctx, dsum, c.accumulate, c.branch ? dbranch.view() : Tensor{}, dweight, dout, s, rstd, w);
                return std::vector<Floats>{out.floats(),     rstd.floats(),
                                           s.floats(),       dsum.floats(),
                                           dweight.floats(), c.branch ? dbranch.floats() : Floats{}};
            });
    }
};

TEST_F(CudaRmsnorm, EqualsTheCpu) {
    for (const Dtype act : kFloatTypes)
        for (const Dtype res : kFloatTypes)
            for (const Case& c :
                 {Case{1, 128, true, false}, Case{3, 640, false, false}, Case{17, 640, true, true},
                  Case{70, 100, false, true}, Case{511, 384, true, true}})
                check(act, res, c);
}

TEST_F(CudaRmsnorm, WideRows) { check(Dtype::bf16, Dtype::f32, {5, 16384, true, true}); }

}  // namespace
}  // namespace q2::test
