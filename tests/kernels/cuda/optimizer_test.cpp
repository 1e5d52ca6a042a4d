// The gradient's norm and AdamW on the GPU against the CPU.
#include <limits>

#include "tests/support/both_backends.h"

namespace q2::test {
namespace {

class CudaOptimizer : public BothBackends {
  protected:
    static StepState state() {
        StepState s;
        s.learning_rate = 1e-2f;
        s.moment1_correction = 0.1f;
        s.moment2_correction = 0.05f;
        s.clip_factor = 0.5f;
        s.loss = 2.0f;
        return s;
    }
    static Floats written(const StepState& s) { return {s.grad_norm, s.clip_factor, float(s.skip)}; }

    StepState norm_of(Context& ctx, const Floats& grads, StepState before, float clip) {
        const int64_t size = int64_t(grads.size());
        const LentScratch scratch(ctx, ctx.ops->gradient_norm_scratch(size));
        const DeviceState state(ctx, before);
        ctx.ops->gradient_norm(ctx, state.get(), DeviceTensor(ctx, 1, size, grads), clip);
        return state.value();
    }
};

TEST_F(CudaOptimizer, NormEqualsTheCpu) {
    for (const int64_t size : {1, 17, 1000, 3000001})
        for (const float clip : {0.0f, 1.0f, 1e6f}) {
            const Floats grads = normals(size);
            compare(concat("norm of ", size), 1e-6, [&](Context& ctx) {
                return std::vector<Floats>{written(norm_of(ctx, grads, state(), clip))};
            });
        }
}

TEST_F(CudaOptimizer, SkipsWhatIsNotFinite) {
    Floats grads = normals(5000);
    EXPECT_EQ(norm_of(cuda(), grads, state(), 1.0f).skip, 0u);
    StepState bad = state();
    bad.loss = std::numeric_limits<float>::infinity();
    EXPECT_NE(norm_of(cuda(), grads, bad, 1.0f).skip, 0u);
    for (const auto& [loss, norm, reason] :
         {std::tuple{1.9f, 1e9f, uint32_t(kHighLoss)}, std::tuple{2.0f, 50.0f, uint32_t(kHighNorm)},
          std::tuple{2.0f, 100.0f, uint32_t(kNotSkipped)}}) {
        StepState limited = state();
        limited.loss_limit = loss, limited.norm_limit = norm;
        EXPECT_EQ(norm_of(cuda(), grads, limited, 1.0f).skip, reason)
            << "5000 normal deviates have norm 70.7";
    }
    grads[4321] = 1.01f * StepState::kLargestNorm;
    EXPECT_EQ(norm_of(cuda(), grads, state(), 0.0f).skip, kNonFinite) << "AdamW could not hold its square";
    EXPECT_EQ(norm_of(cuda(), grads, state(), 1.0f).skip, kNotSkipped);
    grads[4321] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_NE(norm_of(cuda(), grads, state(), 1.0f).skip, 0u);
}

TEST_F(CudaOptimizer, AdamWEqualsTheCpu) {
    for (const int64_t size : {1, 17, 640, 100003})
        for (const float decay : {0.0f, 0.1f})
            for (const uint32_t skip : {0u, 1u}) {
                const Floats p = normals(size), m = normals(size), g = normals(size);
                Floats v = normals(size);
                for (float& x : v) x *= x;
                StepState step = state();
                step.skip = skip;
                compare(concat("adamw of ", size), 2e-6, [&](Context& ctx) {
                    const DeviceState at(ctx, step);
                    const DeviceTensor pt(ctx, 1, size, p), mt(ctx, 1, size, m), vt(ctx, 1, size, v);
                    const DeviceAmax amax(ctx);
                    const uint32_t untouched = amax.bits();
                    ctx.ops->adamw(ctx, pt, mt, vt, DeviceTensor(ctx, 1, size, g), {}, decay, at.get(),
                                   amax.get());
                    EXPECT_EQ(pt.floats() == p, skip != 0);
                    EXPECT_EQ(amax.bits(), skip ? untouched : amax_bits(pt.floats()));
                    return std::vector<Floats>{pt.floats(), mt.floats(), vt.floats()};
                });
            }
}

}  // namespace
}  // namespace q2::test
