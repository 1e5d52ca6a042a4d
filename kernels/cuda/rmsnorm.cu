// Residual add and RMSNorm (Zhang and Sennrich, arXiv 1910.07467): s = residual + branch,
// out = s * rstd * weight, rstd = 1 / sqrt(mean(s^2) + eps). One block a row, which it keeps in registers:
// the forward reads residual and branch and writes sum and out, 12 bytes an element with a float32 residual
// stream; the backward 18.
#include "kernels/cuda/elementwise.h"

namespace q2::cuda {
namespace {

constexpr int kMaxRowThreads = 1024;
constexpr int64_t kRowsPerPartial = 16;  // rows a backward block adds into one partial weight gradient
constexpr int kFoldColumns = 32, kFoldGroups = 8;

/// A thread's part of a row: up to N pieces of W neighbours.
template <int W, int N>
struct Pieces {
    float x[N][W];
};

/// f(i, col) for this thread's pieces of a row, piece i from column col on.
template <int W, int N, class F>
__device__ __forceinline__ void for_pieces(int64_t width, F f) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const int64_t col = int64_t(threadIdx.x + i * blockDim.x) * W;
        if (col < width) f(i, col);
    }
}

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
template <int W, int N, class Act, class Res>
__global__ void __launch_bounds__(kMaxRowThreads) forward_kernel(Forward<Act, Res> f) {
    const int64_t base = blockIdx.x * f.width;
    Pieces<W, N> sum;
    float squares = 0.0f;
    for_pieces<W, N>(f.width, [&](int i, int64_t col) {
        float(&s)[W] = sum.x[i];
        float branch[W] = {};
        load<W>(f.residual + base + col, s);
        if (f.branch) load<W>(f.branch + base + col, branch);
        for (int j = 0; j < W; ++j) {
            s[j] = rounded_to<Res>(s[j] + branch[j]);
            squares += s[j] * s[j];
        }
        store<W>(f.sum + base + col, s);
    });
    const float rstd = 1.0f / sqrtf(block_reduce(squares, Sum{}) / float(f.width) + f.eps);
    if (threadIdx.x == 0) f.rstd[blockIdx.x] = rstd;
    uint32_t largest = 0;
    for_pieces<W, N>(f.width, [&](int i, int64_t col) {
        float y[W], weight[W];
        load<W>(f.weight + col, weight);
        for (int j = 0; j < W; ++j) {
            y[j] = rounded_to<Act>(sum.x[i][j] * rstd * weight[j]);
            largest = max(largest, magnitude_bits(y[j]));
        }
        store<W>(f.out + base + col, y);
    });
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
template <int W, int N, class Act, class Res>
__device__ __forceinline__ void backward_row(const Backward<Act, Res>& b, int64_t row,
                                             const Pieces<W, N>& weight, Pieces<W, N>& dweight) {
    const int64_t base = row * b.width;
    const float rstd = b.rstd[row];
    Pieces<W, N> g, n;
    float dot = 0.0f;
    for_pieces<W, N>(b.width, [&](int i, int64_t col) {
        load<W>(b.dout + base + col, g.x[i]);
        load<W>(b.sum + base + col, n.x[i]);
        for (int j = 0; j < W; ++j) {
            n.x[i][j] *= rstd;
            dweight.x[i][j] += g.x[i][j] * n.x[i][j];
            g.x[i][j] *= weight.x[i][j];
            dot += g.x[i][j] * n.x[i][j];
        }
    });
    const float mean = block_reduce(dot, Sum{}) / float(b.width);
    for_pieces<W, N>(b.width, [&](int i, int64_t col) {
        float d[W] = {};
        if (b.accumulate) load<W>(b.dsum + base + col, d);
        for (int j = 0; j < W; ++j) d[j] += rstd * (g.x[i][j] - n.x[i][j] * mean);
        store<W>(b.dsum + base + col, d);
        for (int j = 0; j < W; ++j) d[j] = rounded_to<Res>(d[j]);  // dbranch is a copy of what was stored
        if (b.dbranch) store<W>(b.dbranch + base + col, d);
    });
}

template <int W, int N, class Act, class Res>
__global__ void __launch_bounds__(kMaxRowThreads) backward_kernel(Backward<Act, Res> b) {
    Pieces<W, N> weight, dweight = {};
    for_pieces<W, N>(b.width, [&](int i, int64_t col) { load<W>(b.weight + col, weight.x[i]); });
    const int64_t first = blockIdx.x * kRowsPerPartial, last = min(first + kRowsPerPartial, b.rows);
    for (int64_t row = first; row < last; ++row) backward_row<W, N>(b, row, weight, dweight);
    for_pieces<W, N>(
        b.width, [&](int i, int64_t col) { store<W>(b.partial + blockIdx.x * b.width + col, dweight.x[i]); });
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

/// Calls f with 1 or, for the widest rows, which then spill registers, with enough pieces a thread.
template <int W, class F>
void for_piece_count(int64_t width, F f) {
    const int64_t pieces = (width + W * kMaxRowThreads - 1) / (W * kMaxRowThreads);
    check(pieces <= 32 / W, Exit::config, "rmsnorm: a width of ", width,
          " is more than this device's norm takes: ", 32 * kMaxRowThreads);
    if (pieces == 1) return f(std::integral_constant<int, 1>{});
    f(std::integral_constant<int, 32 / W>{});
}

/// f(act, res, W, N) with values of the types and constants of the sizes.
template <class F>
void for_kinds(Dtype act, Dtype res, bool wide, int64_t cols, F f) {
    for_float_type(act, [&](auto act_type) {
        for_float_type(res, [&](auto res_type) {
            for_width(wide, [&](auto width) {
                for_piece_count<width>(cols, [&](auto pieces) { f(act_type, res_type, width, pieces); });
            });
        });
    });
}

/// Threads of a row's block: each has work where one piece a thread is enough.
unsigned row_threads(int64_t width, int per_thread) {
    return unsigned(
        std::min<int64_t>((width + per_thread * kWarp - 1) / (per_thread * kWarp) * kWarp, kMaxRowThreads));
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
    for_kinds(out.dtype, residual.dtype, wide, out.cols,
              [&](auto act_type, auto res_type, auto width, auto pieces) {
                  using Act = decltype(act_type);
                  using Res = decltype(res_type);
                  const Forward<Act, Res> f{
                      out.as<Act>(),         rstd.as<float>(),   sum.as<Res>(), residual.as<Res>(),
                      optional<Act>(branch), weight.as<float>(), out.cols,      eps,
                      cleared(ctx, amax)};
                  Launch{stream_of(ctx), blocks_for(out.rows, 1), row_threads(out.cols, width)}(
                      forward_kernel<width, pieces, Act, Res>, f);
              });
}

void residual_rmsnorm_backward(Context& ctx, Tensor dsum, bool accumulate, Tensor dbranch, Tensor dweight,
                               Tensor dout, Tensor sum, Tensor rstd, Tensor weight) {
    check_shapes("residual_rmsnorm_backward", dsum, dout, weight);
    const int64_t partials = blocks_for(dout.rows, kRowsPerPartial);
    float* partial = Scratch(ctx, "residual_rmsnorm_backward").take<float>(partials * dout.cols);
    const bool wide = rows_are_wide({dsum, dbranch, dout, sum, weight});
    for_kinds(dout.dtype, dsum.dtype, wide, dout.cols,
              [&](auto act_type, auto res_type, auto width, auto pieces) {
                  using Act = decltype(act_type);
                  using Res = decltype(res_type);
                  const Backward<Act, Res> b{
                      dsum.as<Res>(), accumulate,       optional<Act>(dbranch), partial,   dout.as<Act>(),
                      sum.as<Res>(),  rstd.as<float>(), weight.as<float>(),     dout.rows, dout.cols};
                  Launch{stream_of(ctx), unsigned(partials), row_threads(dout.cols, width)}(
                      backward_kernel<width, pieces, Act, Res>, b);
              });
    const dim3 threads(kFoldColumns, kFoldGroups);
    Launch{stream_of(ctx), blocks_for(dout.cols, kFoldColumns), threads}(fold_kernel, dweight.as<float>(),
                                                                         partial, partials, dout.cols);
}

size_t residual_rmsnorm_backward_scratch(int64_t tokens, int64_t width) {
    return Scratch::rounded(blocks_for(tokens, kRowsPerPartial) * size_t(width) * sizeof(float));
}

}  // namespace q2::cuda
