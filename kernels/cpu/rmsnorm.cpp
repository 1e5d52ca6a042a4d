// Residual add and RMSNorm: s = residual + branch, rstd = 1/sqrt(mean(s^2) + eps), out = s * rstd * weight.
// The norm reads s as stored, so that forward and backward agree where the residual stream is bfloat16.
//
// Backward, with y = s * rstd and dy = dout * weight: ds = rstd * (dy - y * mean(dy * y)),
// dweight = sum over rows of dout * y.
#include <algorithm>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace q2::cpu {
namespace {

constexpr int64_t kWeightChunk = 64;  // rows that share a partial sum of dweight

int64_t weight_chunks(int64_t rows) { return (rows + kWeightChunk - 1) / kWeightChunk; }

template <class Res, class Act>
float add_rows(Res* sum, const Res* residual, const Act* branch, int64_t width) {
    float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
    for (int64_t c = 0; c < width; ++c) {
        const float added = to_float(residual[c]) + (branch ? to_float(branch[c]) : 0.0f);
        sum[c] = from_float<Res>(added);
        const float s = to_float(sum[c]);
        squares += s * s;
    }
    return squares;
}

template <class Res, class Act>
uint32_t scale_row(Act* out, const Res* sum, float rstd, const float* weight, int64_t width) {
    uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t c = 0; c < width; ++c) {
        out[c] = from_float<Act>(to_float(sum[c]) * rstd * weight[c]);
        largest = std::max(largest, magnitude_bits(to_float(out[c])));
    }
    return largest;
}

/// One row's ds, added to or stored in dsum and copied to dbranch; its part of dweight is added.
template <class Res, class Act>
void backward_row(Res* dsum, bool accumulate, Act* dbranch, float* dweight, const Act* dout, const Res* sum,
                  float rstd, const float* weight, int64_t width) {
    float product = 0.0f;
#pragma omp simd reduction(+ : product)
    for (int64_t c = 0; c < width; ++c) product += to_float(dout[c]) * weight[c] * (to_float(sum[c]) * rstd);
    const float mean = product / float(width);
#pragma omp simd
    for (int64_t c = 0; c < width; ++c) {
        const float d = to_float(dout[c]), y = to_float(sum[c]) * rstd;
        dweight[c] += d * y;
        const float ds = rstd * (d * weight[c] - y * mean);
        dsum[c] = from_float<Res>(accumulate ? to_float(dsum[c]) + ds : ds);
    }
    if (!dbranch) return;
    for (int64_t c = 0; c < width; ++c) dbranch[c] = from_float<Act>(to_float(dsum[c]));
}

/// dweight += the partial sums, chunk after chunk, whichever thread made them.
void add_partials(float* dweight, const float* partial, int64_t chunks, int64_t width) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
        for (int64_t c = 0; c < width; ++c) dweight[c] += partial[chunk * width + c];
}

/// f(value of the residual stream's type, value of the activations' type).
template <class F>
void for_two_types(Dtype residual, Dtype activations, F f) {
    for_float_type(residual, [&](auto res) { for_float_type(activations, [&](auto act) { f(res, act); }); });
}

}  // namespace

void residual_rmsnorm_forward(Context&, Tensor out, Tensor rstd, Tensor sum, Tensor residual, Tensor branch,
                              Tensor weight, float eps, Amax* amax) {
    const int64_t rows = residual.rows, width = residual.cols;
    require_shape("residual_rmsnorm_forward: out", out, rows, width);
    require_shape("residual_rmsnorm_forward: rstd", rstd, rows, 1);
    require_shape("residual_rmsnorm_forward: sum", sum, rows, width);
    require_shape("residual_rmsnorm_forward: weight", weight, 1, width);
    if (branch) require_shape("residual_rmsnorm_forward: branch", branch, rows, width);
    clear_amax(amax);
    float* const rstds = rstd.as<float>();
    const float* const weights = weight.as<float>();
    for_two_types(residual.dtype, out.dtype, [&](auto res, auto act) {
        using Res = decltype(res);
        using Act = decltype(act);
        Res* const sums = sum.as<Res>();
        const Res* const residuals = residual.as<Res>();
        const Act* const branches = branch ? branch.as<Act>() : nullptr;
        Act* const outs = out.as<Act>();
        parallel_rows(rows, [=](int64_t first, int64_t last) {
            uint32_t largest = 0;
            for (int64_t row = first; row < last; ++row) {
                const int64_t at = row * width;
                const float squares =
                    add_rows(sums + at, residuals + at, branches ? branches + at : nullptr, width);
                rstds[row] = 1.0f / std::sqrt(squares / float(width) + eps);
                largest = std::max(largest, scale_row(outs + at, sums + at, rstds[row], weights, width));
            }
            raise_amax(amax, largest);
        });
    });
}

void residual_rmsnorm_backward(Context& ctx, Tensor dsum, bool accumulate, Tensor dbranch, Tensor dweight,
                               Tensor dout, Tensor sum, Tensor rstd, Tensor weight) {
    const int64_t rows = sum.rows, width = sum.cols, chunks = weight_chunks(rows);
    require_shape("residual_rmsnorm_backward: dsum", dsum, rows, width);
    require_shape("residual_rmsnorm_backward: dweight", dweight, 1, width);
    require_shape("residual_rmsnorm_backward: dout", dout, rows, width);
    require_shape("residual_rmsnorm_backward: rstd", rstd, rows, 1);
    require_shape("residual_rmsnorm_backward: weight", weight, 1, width);
    if (dbranch) require_shape("residual_rmsnorm_backward: dbranch", dbranch, rows, width);
    Scratch scratch(ctx, "residual_rmsnorm_backward");
    float* const partial = scratch.take<float>(chunks * width);
    const float *const rstds = rstd.as<float>(), *const weights = weight.as<float>();
    for_two_types(sum.dtype, dout.dtype, [&](auto res, auto act) {
        using Res = decltype(res);
        using Act = decltype(act);
        Res* const dsums = dsum.as<Res>();
        const Res* const sums = sum.as<Res>();
        const Act* const douts = dout.as<Act>();
        Act* const dbranches = dbranch ? dbranch.as<Act>() : nullptr;
        parallel_for(chunks, [=](int64_t chunk) {
            float* const dweights = partial + chunk * width;
            std::fill(dweights, dweights + width, 0.0f);
            const int64_t last = std::min(rows, (chunk + 1) * kWeightChunk);
            for (int64_t row = chunk * kWeightChunk; row < last; ++row) {
                const int64_t at = row * width;
                backward_row(dsums + at, accumulate, dbranches ? dbranches + at : nullptr, dweights,
                             douts + at, sums + at, rstds[row], weights, width);
            }
        });
    });
    add_partials(dweight.as<float>(), partial, chunks, width);
}

size_t residual_rmsnorm_backward_scratch(int64_t tokens, int64_t width) {
    return Scratch::rounded(weight_chunks(tokens) * width * sizeof(float));
}

}  // namespace q2::cpu
