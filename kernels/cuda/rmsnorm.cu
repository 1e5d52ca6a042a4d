// Residual add and RMSNorm (Zhang and Sennrich, arXiv 1910.07467): s = residual + branch,
// out = s * rstd * weight, rstd = 1 / sqrt(mean(s^2) + eps). One block a row.
#include "kernels/cuda/device/shared.h"
#include "kernels/cuda/elementwise.h"

namespace q2::cuda {
namespace {

constexpr int kRowThreads = 128;
constexpr int64_t kRowsPerPartial = 32;  // rows a backward block adds into one partial weight gradient
constexpr int kFoldColumns = 32, kFoldGroups = 8;

/// What the kernels read and write; Act and Res are the activations' and the residual stream's types.
template <class Act, class Res>
struct Forward {
    Act* out;
    float* rstd;
    Res* sum;
    const Res* residual;
    const Act* branch;
    const float* weight;
    int64_t width;
    float eps;
    uint32_t* amax;
};

/// The norm sees the sum as it is stored, which is what the backward reads.
template <int W, class Act, class Res>
__global__ void forward_kernel(Forward<Act, Res> f) {
    const int64_t row = blockIdx.x, base = row * f.width;
    float squares = 0.0f;
    for (int64_t col = threadIdx.x * W; col < f.width; col += kRowThreads * W) {
        float s[W], branch[W] = {};
        load<W>(f.residual + base + col, s);
        if (f.branch) load<W>(f.branch + base + col, branch);
        for (int j = 0; j < W; ++j) {
            s[j] = rounded_to<Res>(s[j] + branch[j]);
            squares += s[j] * s[j];
        }
        store<W>(f.sum + base + col, s);
    }
    const float rstd = 1.0f / sqrtf(block_reduce(squares, Sum{}) / float(f.width) + f.eps);
    if (threadIdx.x == 0) f.rstd[row] = rstd;
    uint32_t largest = 0;
    for (int64_t col = threadIdx.x * W; col < f.width; col += kRowThreads * W) {
        float y[W], weight[W];
        load<W>(f.sum + base + col, y);  // this thread's own
        load<W>(f.weight + col, weight);
        for (int j = 0; j < W; ++j) {
            y[j] = rounded_to<Act>(y[j] * rstd * weight[j]);
            largest = max(largest, magnitude_bits(y[j]));
        }
        store<W>(f.out + base + col, y);
    }
    if (f.amax) block_amax_into(f.amax, largest);
}

template <class Act, class Res>
struct Backward {
    Res* dsum;
    bool accumulate;
    Act* dbranch;
    float* partial;  // (blocks, width)
    const Act* dout;
    const Res* sum;
    const float *rstd, *weight;
    int64_t rows, width;
};

/// With n = s * rstd and g = dout * weight: dsum = rstd * (g - n * mean(g * n)), dweight = sum of dout * n.
template <int W, class Act, class Res>
__device__ void backward_row(const Backward<Act, Res>& b, int64_t row, float* dweight) {
    const int64_t base = row * b.width;
    const float rstd = b.rstd[row];
    float dot = 0.0f;
    for (int64_t col = threadIdx.x * W; col < b.width; col += kRowThreads * W) {
        float d[W], s[W], weight[W], gradient[W];
        load<W>(b.dout + base + col, d);
        load<W>(b.sum + base + col, s);
        load<W>(b.weight + col, weight);
        load<W>(dweight + col, gradient);
        for (int j = 0; j < W; ++j) {
            const float n = s[j] * rstd;
            dot += d[j] * weight[j] * n;
            gradient[j] += d[j] * n;
        }
        store<W>(dweight + col, gradient);
    }
    const float mean = block_reduce(dot, Sum{}) / float(b.width);
    for (int64_t col = threadIdx.x * W; col < b.width; col += kRowThreads * W) {
        float d[W], s[W], weight[W], before[W] = {};
        load<W>(b.dout + base + col, d);
        load<W>(b.sum + base + col, s);
        load<W>(b.weight + col, weight);
        if (b.accumulate) load<W>(b.dsum + base + col, before);
        for (int j = 0; j < W; ++j) d[j] = before[j] + rstd * (d[j] * weight[j] - s[j] * rstd * mean);
        store<W>(b.dsum + base + col, d);
        for (int j = 0; j < W; ++j) d[j] = rounded_to<Res>(d[j]);  // dbranch is a copy of what was stored
        if (b.dbranch) store<W>(b.dbranch + base + col, d);
    }
}

template <int W, class Act, class Res>
__global__ void backward_kernel(Backward<Act, Res> b) {
    float* dweight = dynamic_shared<float>();  // (width): a thread touches its own columns only
    for (int64_t col = threadIdx.x * W; col < b.width; col += kRowThreads * W)
        for (int j = 0; j < W; ++j) dweight[col + j] = 0.0f;
    const int64_t first = blockIdx.x * kRowsPerPartial, last = min(first + kRowsPerPartial, b.rows);
    for (int64_t row = first; row < last; ++row) backward_row<W>(b, row, dweight);
    for (int64_t col = threadIdx.x * W; col < b.width; col += kRowThreads * W)
        for (int j = 0; j < W; ++j) b.partial[blockIdx.x * b.width + col + j] = dweight[col + j];
}

/// dweight += the partial gradients, in a fixed order: eight groups of every eighth, then the groups.
__global__ void fold_kernel(float* dweight, const float* partial, int64_t partials, int64_t width) {
    const int64_t col = int64_t(blockIdx.x) * kFoldColumns + threadIdx.x;
    float sum = 0.0f;
    if (col < width)
        for (int64_t i = threadIdx.y; i < partials; i += kFoldGroups) sum += partial[i * width + col];
    __shared__ float of_group[kFoldGroups][kFoldColumns];
    of_group[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || col >= width) return;
    float total = dweight[col];
    for (int group = 0; group < kFoldGroups; ++group) total += of_group[group][threadIdx.x];
    dweight[col] = total;
}

void check_shapes(const char* op, Tensor a, Tensor b, Tensor weight) {
    require(a.rows == b.rows && a.cols == b.cols && weight.size() == a.cols, op, ": (", a.rows, ", ", a.cols,
            ") beside (", b.rows, ", ", b.cols, "), weight of ", weight.size());
}

template <class F>
void for_types(Dtype act, Dtype res, bool wide, F f) {
    for_float_type(act, [&](auto act_type) {
        for_float_type(
            res, [&](auto res_type) { for_width(wide, [&](auto width) { f(act_type, res_type, width); }); });
    });
}

template <class T>
T* optional(Tensor t) {
    return t ? t.as<T>() : nullptr;
}

}  // namespace

void residual_rmsnorm_forward(Context& ctx, Tensor out, Tensor rstd, Tensor sum, Tensor residual,
                              Tensor branch, Tensor weight, float eps, Amax* amax) {
    check_shapes("residual_rmsnorm_forward", out, residual, weight);
    const bool wide = rows_are_wide({out, sum, residual, branch, weight});
    for_types(out.dtype, residual.dtype, wide, [&](auto act_type, auto res_type, auto width) {
        using Act = decltype(act_type);
        using Res = decltype(res_type);
        const Forward<Act, Res> f{
            out.as<Act>(),      rstd.as<float>(), sum.as<Res>(), residual.as<Res>(), optional<Act>(branch),
            weight.as<float>(), out.cols,         eps,           cleared(ctx, amax)};
        Launch{stream_of(ctx), blocks_for(out.rows, 1), kRowThreads}(forward_kernel<width, Act, Res>, f);
    });
}

void residual_rmsnorm_backward(Context& ctx, Tensor dsum, bool accumulate, Tensor dbranch, Tensor dweight,
                               Tensor dout, Tensor sum, Tensor rstd, Tensor weight) {
    check_shapes("residual_rmsnorm_backward", dsum, dout, weight);
    const int64_t partials = blocks_for(dout.rows, kRowsPerPartial);
    float* partial = Scratch(ctx, "residual_rmsnorm_backward").take<float>(partials * dout.cols);
    const bool wide = rows_are_wide({dsum, dbranch, dout, sum, weight});
    for_types(dout.dtype, dsum.dtype, wide, [&](auto act_type, auto res_type, auto width) {
        using Act = decltype(act_type);
        using Res = decltype(res_type);
        const Backward<Act, Res> b{dsum.as<Res>(), accumulate,    optional<Act>(dbranch), partial,
                                   dout.as<Act>(), sum.as<Res>(), rstd.as<float>(),       weight.as<float>(),
                                   dout.rows,      dout.cols};
        const size_t shared = size_t(dout.cols) * sizeof(float);
        Launch{stream_of(ctx), unsigned(partials), kRowThreads, shared}(backward_kernel<width, Act, Res>, b);
    });
    const dim3 threads(kFoldColumns, kFoldGroups);
    Launch{stream_of(ctx), blocks_for(dout.cols, kFoldColumns), threads}(fold_kernel, dweight.as<float>(),
                                                                         partial, partials, dout.cols);
}

size_t residual_rmsnorm_backward_scratch(int64_t tokens, int64_t width) {
    return Scratch::rounded(blocks_for(tokens, kRowsPerPartial) * size_t(width) * sizeof(float));
}

}  // namespace q2::cuda
