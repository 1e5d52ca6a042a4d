// The loss, its gradient and its sum on the GPU against the CPU.
#include "tests/support/both_backends.h"

namespace q2::test {
namespace {

class CudaCrossEntropy : public BothBackends {
  protected:
    void check(Dtype dtype, int64_t rows, int64_t vocab, bool want_gradient) {
        const Floats logits = normals(rows * vocab, 3.0f);
        std::vector<int32_t> targets = integers(rows, 0, int32_t(vocab - 1));
        if (rows > 2) targets[1] = -1;
        compare(concat(rows, " rows, vocabulary ", vocab), dtype == Dtype::f32 ? 3e-5 : 1e-2,
                [&](Context& ctx) {
                    const DeviceTensor x = tensor_of(ctx, dtype, rows, vocab, logits);
                    const DeviceTensor losses(ctx, Dtype::f32, rows, 1), target(ctx, rows, 1, targets);
                    ctx.ops->cross_entropy(ctx, losses, x, target, 0.25f, want_gradient);
                    return std::vector<Floats>{losses.floats(), x.floats()};
                });
    }
};

TEST_F(CudaCrossEntropy, EqualsTheCpu) {
    for (const Dtype dtype : kFloatTypes)
        for (const bool want_gradient : {false, true}) {
            check(dtype, 1, 50257, want_gradient);
            check(dtype, 3, 32000, want_gradient);
            check(dtype, 17, 256, want_gradient);
            check(dtype, 511, 7, want_gradient);
        }
}

TEST_F(CudaCrossEntropy, SurvivesLargeLogits) {
    compare("large logits", 3e-5, [&](Context& ctx) {
        Floats logits(2 * 640, -3e4f);
        logits[5] = 3e4f;
        logits[640 + 7] = 2.9e4f;
        const DeviceTensor x(ctx, 2, 640, logits), losses(ctx, Dtype::f32, 2, 1);
        const DeviceTensor target(ctx, 2, 1, std::vector<int32_t>{5, 8});
        ctx.ops->cross_entropy(ctx, losses, x, target, 1.0f, true);
        return std::vector<Floats>{losses.floats(), x.floats()};
    });
}

/// Training looks for a bad value in the loss: it must not vanish on the way.
TEST_F(CudaCrossEntropy, KeepsANan) {
    for (const size_t at : {size_t(0), size_t(301), size_t(639)}) {
        Floats logits = normals(640);
        logits[at] = NAN;
        const DeviceTensor x(cuda(), 1, 640, logits), losses(cuda(), Dtype::f32, 1, 1);
        cuda().ops->cross_entropy(cuda(), losses, x, DeviceTensor(cuda(), 1, 1, std::vector<int32_t>{4}),
                                  1.0f, false);
        EXPECT_TRUE(std::isnan(losses.floats()[0])) << at;
    }
}

TEST_F(CudaCrossEntropy, AddsLosses) {
    for (const int64_t count : {1, 17, 16384}) {
        const Floats losses = normals(count);
        compare("add_loss", 1e-5, [&](Context& ctx) {
            const DeviceTensor total(ctx, 1, 1, Floats{2.5f}), x(ctx, count, 1, losses);
            ctx.ops->add_loss(ctx, total.view().as<float>(), x, 0.125f);
            return std::vector<Floats>{total.floats()};
        });
    }
}

}  // namespace
}  // namespace q2::test
