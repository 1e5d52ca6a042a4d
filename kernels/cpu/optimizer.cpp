// Gradient norm with clipping, and AdamW (Loshchilov & Hutter, arXiv 1711.05101): decay first, then
// p -= lr * (m / c1) / (sqrt(v / c2) + eps), c1 and c2 the bias corrections 1 - beta^t.
#include <algorithm>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace q2::cpu {
namespace {

constexpr int64_t kChunk = 1 << 14;  // elements that a thread takes at a time, and that share a partial sum

int64_t chunk_count(int64_t size) { return (size + kChunk - 1) / kChunk; }

double sum_of_squares(const float* x, int64_t count) {
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; ++i) sum += double(x[i]) * double(x[i]);
    return sum;
}

struct Update {
    AdamWSettings settings;
    float keep, learning_rate, clip_factor, correction1, correction2;  // keep = 1 - lr * decay

    /// Returns the largest magnitude of the new p.
    uint32_t apply(float* p, float* m, float* v, const float* g, int64_t count) const {
        const float beta1 = settings.beta1, beta2 = settings.beta2, eps = settings.eps;
        uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
        for (int64_t i = 0; i < count; ++i) {
            const float gradient = g[i] * clip_factor;
            m[i] = beta1 * m[i] + (1.0f - beta1) * gradient;
            v[i] = beta2 * v[i] + (1.0f - beta2) * (gradient * gradient);
            const float step = (m[i] / correction1) / (std::sqrt(v[i] / correction2) + eps);
            p[i] = p[i] * keep - learning_rate * step;
            largest = std::max(largest, magnitude_bits(p[i]));
        }
        return largest;
    }
};

}  // namespace

void gradient_norm(Context& ctx, StepState* state, Tensor grads, float clip) {
    Scratch scratch(ctx, "gradient_norm");
    const int64_t size = grads.size(), chunks = chunk_count(size);
    double* const partial = scratch.take<double>(chunks);
    const float* const g = grads.as<float>();
    parallel_for(chunks, [=](int64_t chunk) {
        const int64_t first = chunk * kChunk;
        partial[chunk] = sum_of_squares(g + first, std::min(kChunk, size - first));
    });
    double total = 0.0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) total += partial[chunk];
    state->grad_norm = float(std::sqrt(total));
    state->clip_factor = clip > 0.0f ? std::min(1.0f, clip / (state->grad_norm + 1e-6f)) : 1.0f;
    state->skip = skip_reason(*state);
}

size_t gradient_norm_scratch(int64_t size) { return Scratch::rounded(chunk_count(size) * sizeof(double)); }

void adamw(Context&, Tensor p, Tensor m, Tensor v, Tensor g, const AdamWSettings& settings, float decay,
           const StepState* state, Amax* amax) {
    require_shape("adamw: m", m, p.rows, p.cols);
    require_shape("adamw: v", v, p.rows, p.cols);
    require_shape("adamw: g", g, p.rows, p.cols);
    if (state->skip) return;
    clear_amax(amax);
    const Update update{settings,           1.0f - state->learning_rate * decay, state->learning_rate,
                        state->clip_factor, state->moment1_correction,           state->moment2_correction};
    const int64_t size = p.size();
    float *const ps = p.as<float>(), *const ms = m.as<float>(), *const vs = v.as<float>();
    const float* const gs = g.as<float>();
    parallel_for(chunk_count(size), [=](int64_t chunk) {
        const int64_t at = chunk * kChunk;
        raise_amax(amax, update.apply(ps + at, ms + at, vs + at, gs + at, std::min(kChunk, size - at)));
    });
}

}  // namespace q2::cpu
