// Cross-entropy of each row of logits, its gradient in place, and the sum of the losses. One block a row: one
// pass finds the maximum and the sum of exponentials together, a second writes the gradient.
#include <cfloat>

#include "kernels/cuda/elementwise.h"

namespace q2::cuda {
namespace {

constexpr int kRowThreads = 512;
constexpr int kLossThreads = 1024;

/// A running softmax denominator: sum of exp(x - max).
struct Denominator {
    float max, sum;
};

__device__ __forceinline__ Denominator include(Denominator d, float x) {
    if (x <= d.max) return {d.max, d.sum + expf(x - d.max)};
    return {x, d.sum * expf(d.max - x) + 1.0f};  // a NaN comes here, and stays
}

template <int W, class T>
__device__ Denominator row_denominator(const T* logits, int64_t vocab) {
    Denominator d{-FLT_MAX, 0.0f};  // finite: the difference of two infinities would be a NaN
    for (int64_t col = threadIdx.x * W; col < vocab; col += kRowThreads * W) {
        float x[W];
        load<W>(logits + col, x);
        for (int j = 0; j < W; ++j) d = include(d, x[j]);
    }
    const float largest = block_reduce(d.max, Max{});
    return {largest, block_reduce(d.sum * expf(d.max - largest), Sum{})};
}

template <int W, class T>
__global__ void loss_kernel(float* losses, T* logits, const int32_t* targets, int64_t vocab,
                            float gradient_scale, bool want_gradient) {
    const int64_t row = blockIdx.x;
    T* x = logits + row * vocab;
    const int32_t target = targets[row];
    const Denominator d = row_denominator<W>(x, vocab);
    if (threadIdx.x == 0)  // the difference of the large numbers first, so that it loses nothing
        losses[row] = target < 0 ? 0.0f : logf(d.sum) + (d.max - to_float(x[target]));
    if (!want_gradient) return;
    __syncthreads();  // the target's logit has been read before it is overwritten
    const float inverse = 1.0f / d.sum;
    for (int64_t col = threadIdx.x * W; col < vocab; col += kRowThreads * W) {
        float g[W];
        load<W>(x + col, g);
        for (int j = 0; j < W; ++j)
            g[j] = target < 0 ? 0.0f
                              : gradient_scale * (expf(g[j] - d.max) * inverse - float(col + j == target));
        store<W>(x + col, g);
    }
}

__global__ void add_kernel(float* total, const float* losses, int64_t count, float scale) {
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < count; i += kLossThreads) sum += losses[i];
    sum = block_reduce(sum, Sum{});
    if (threadIdx.x == 0) *total += float(scale * sum);
}

}  // namespace

void cross_entropy(Context& ctx, Tensor losses, Tensor logits, Tensor targets, float gradient_scale,
                   bool want_gradient) {
    require(losses.size() == logits.rows && targets.size() == logits.rows, "cross_entropy: ", logits.rows,
            " rows of logits, ", losses.size(), " losses, ", targets.size(), " targets");
    for_float_type(logits.dtype, [&](auto type) {
        for_width(rows_are_wide({logits}), [&](auto width) {
            using T = decltype(type);
            Launch{stream_of(ctx), blocks_for(logits.rows, 1), kRowThreads}(
                loss_kernel<width, T>, losses.as<float>(), logits.as<T>(), targets.as<int32_t>(), logits.cols,
                gradient_scale, want_gradient);
        });
    });
}

void add_loss(Context& ctx, float* total, Tensor losses, float scale) {
    Launch{stream_of(ctx), 1, kLossThreads}(add_kernel, total, losses.as<float>(), losses.size(), scale);
}

}  // namespace q2::cuda
