// The gradient's norm and AdamW (Loshchilov and Hutter, arXiv 1711.05101). Both read and write StepState
// where it lies, so that a step needs no answer from the device.
#include "kernels/cuda/elementwise.h"

namespace q2::cuda {
namespace {

constexpr int64_t kNormBlocks = 1024;  // partial sums; fixed, so that the order of the additions is

__global__ void square_kernel(double* partial, const float* grads, int64_t size) {
    double sum = 0.0;
    strided_for(size, [&](int64_t i) { sum += double(grads[i]) * grads[i]; });
    sum = block_reduce(sum, Sum{});
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void norm_kernel(StepState* state, const double* partial, float clip) {
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < kNormBlocks; i += blockDim.x) sum += partial[i];
    sum = block_reduce(sum, Sum{});
    if (threadIdx.x > 0) return;
    const float norm = float(sqrt(sum)), factor = clip / (norm + 1e-6f);
    state->grad_norm = norm;
    state->clip_factor = clip > 0.0f && factor < 1.0f ? factor : 1.0f;
    state->skip = skip_reason(*state);
}

struct AdamWTensors {
    float *p, *m, *v;
    const float* g;
};

/// Decay first, then Adam with bias correction; eps is outside the root.
__device__ __forceinline__ float adamw_update(float p, float& m, float& v, float g, const StepState& s,
                                              const AdamWSettings& settings, float decay) {
    const float grad = g * s.clip_factor;
    m = settings.beta1 * m + (1.0f - settings.beta1) * grad;
    v = settings.beta2 * v + (1.0f - settings.beta2) * grad * grad;
    const float decayed = p - s.learning_rate * decay * p;
    const float step = m / s.moment1_correction / (sqrtf(v / s.moment2_correction) + settings.eps);
    return decayed - s.learning_rate * step;
}

__global__ void clear_amax_kernel(uint32_t* amax, const StepState* state) {
    if (state->skip == kNotSkipped) *amax = 0;
}

template <int W>
__global__ void adamw_kernel(AdamWTensors t, int64_t groups, AdamWSettings settings, float decay,
                             const StepState* state, uint32_t* amax) {
    const StepState s = *state;
    if (s.skip != kNotSkipped) return;
    uint32_t largest = 0;
    strided_for(groups, [&](int64_t i) {
        float p[W], m[W], v[W], g[W];
        load<W>(t.p + i * W, p);
        load<W>(t.m + i * W, m);
        load<W>(t.v + i * W, v);
        load<W>(t.g + i * W, g);
        for (int j = 0; j < W; ++j) {
            p[j] = adamw_update(p[j], m[j], v[j], g[j], s, settings, decay);
            largest = max(largest, magnitude_bits(p[j]));
        }
        store<W>(t.p + i * W, p);
        store<W>(t.m + i * W, m);
        store<W>(t.v + i * W, v);
    });
    if (amax) block_amax_into(amax, largest);
}

}  // namespace

void gradient_norm(Context& ctx, StepState* state, Tensor grads, float clip) {
    double* partial = Scratch(ctx, "gradient_norm").take<double>(kNormBlocks);
    Launch{stream_of(ctx), unsigned(kNormBlocks), kThreads}(square_kernel, partial, grads.as<float>(),
                                                            grads.size());
    Launch{stream_of(ctx), 1, kThreads}(norm_kernel, state, partial, clip);
}

size_t gradient_norm_scratch(int64_t) { return Scratch::rounded(kNormBlocks * sizeof(double)); }

void adamw(Context& ctx, Tensor p, Tensor m, Tensor v, Tensor g, const AdamWSettings& settings, float decay,
           const StepState* state, Amax* amax) {
    require(p.size() == m.size() && p.size() == v.size() && p.size() == g.size(), "adamw: sizes ", p.size(),
            ", ", m.size(), ", ", v.size(), " and ", g.size());
    const auto flat = [](Tensor t) { return Tensor{t.data, t.dtype, 1, t.size()}; };
    const AdamWTensors tensors{p.as<float>(), m.as<float>(), v.as<float>(), g.as<float>()};
    uint32_t* const largest = amax ? &amax->bits : nullptr;
    if (largest) Launch{stream_of(ctx), 1, 1}(clear_amax_kernel, largest, state);
    for_width(rows_are_wide({flat(p), flat(m), flat(v), flat(g)}), [&](auto width) {
        const int64_t groups = p.size() / width;
        strided_launch(ctx, groups)(adamw_kernel<width>, tensors, groups, settings, decay, state, largest);
    });
}

}  // namespace q2::cuda
