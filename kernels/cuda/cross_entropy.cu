// Cross-entropy of each row of logits, its gradient in place, and the sum of the losses. One block a row: a
// pass that reads it and finds the maximum, one for the sum of exponentials, one that writes the gradient.
#include <cfloat>

#include "kernels/cuda/device/shared.h"
#include "kernels/cuda/elementwise.h"

namespace q2::cuda {
namespace {

constexpr int kRowThreads = 512;
constexpr int kLossThreads = 1024;

constexpr size_t kCachedBytes = 72 << 10;  // of a row, so that three blocks share a multiprocessor of 227 KB

/// A row of logits, of which the first `cached` are kept in shared memory: global memory is read once. A
/// thread comes back to its own columns only, so nothing waits.
template <int W, class T>
struct Row {
    T *logits, *cache;
    int vocab, cached;

    /// f(col, x) for this thread's columns, x being the W logits from col on.
    template <class F>
    __device__ __forceinline__ void for_each(F f) const {
        for (int col = int(threadIdx.x) * W; col < vocab; col += kRowThreads * W) {
            float x[W];
            load<W>(col < cached ? cache + col : logits + col, x);
            f(col, x);
        }
    }
    /// Fills the cache; returns the largest of this thread's logits. A NaN is passed over: the sum meets it.
    __device__ __forceinline__ float fetch() const {
        float largest = -FLT_MAX;  // finite: the difference of two infinities would be a NaN
        for (int col = int(threadIdx.x) * W; col < vocab; col += kRowThreads * W) {
            float x[W];
            load<W>(logits + col, x);
            if (col < cached) store<W>(cache + col, x);
            for (int j = 0; j < W; ++j) largest = fmaxf(largest, x[j]);
        }
        return largest;
    }
};

template <int W, class T>
__global__ void __launch_bounds__(kRowThreads)
    loss_kernel(float* losses, T* logits, const int32_t* targets, int vocab, int cached, float gradient_scale,
                bool want_gradient) {
    const Row<W, T> row{logits + int64_t(blockIdx.x) * vocab, dynamic_shared<T>(), vocab, cached};
    const int32_t target = targets[blockIdx.x];
    const float largest = block_reduce(row.fetch(), Max{});
    float sum = 0.0f;
    row.for_each([&](int, const float(&x)[W]) {
        for (int j = 0; j < W; ++j) sum += __expf(x[j] - largest);
    });
    sum = block_reduce(sum, Sum{});
    if (threadIdx.x == 0)  // the difference of the large numbers first, so that it loses nothing
        losses[blockIdx.x] = target < 0 ? 0.0f : logf(sum) + (largest - to_float(row.logits[target]));
    if (!want_gradient) return;
    __syncthreads();  // the target's logit has been read before it is overwritten
    const float factor = target < 0 ? 0.0f : gradient_scale / sum;
    row.for_each([&](int col, float(&x)[W]) {
        for (int j = 0; j < W; ++j) x[j] = target < 0 ? 0.0f : __expf(x[j] - largest) * factor;
        if (target >= col && target < col + W)  // so that one comparison serves W logits
            for (int j = 0; j < W; ++j) x[j] -= col + j == target ? gradient_scale : 0.0f;
        store<W>(row.logits + col, x);
    });
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
            const int cached = int(std::min(logits.cols, int64_t(kCachedBytes / sizeof(T))));
            Launch{stream_of(ctx), blocks_for(logits.rows, 1), kRowThreads, size_t(cached) * sizeof(T)}(
                loss_kernel<width, T>, losses.as<float>(), logits.as<T>(), targets.as<int32_t>(), logits.cols,
                cached, gradient_scale, want_gradient);
        });
    });
}

void add_loss(Context& ctx, float* total, Tensor losses, float scale) {
    Launch{stream_of(ctx), 1, kLossThreads}(add_kernel, total, losses.as<float>(), losses.size(), scale);
}

}  // namespace q2::cuda
