// out = alpha A B^T through CBLAS, in tiles of fixed size: the tiles run in parallel, each in one BLAS
// thread, so the bits do not depend on the number of threads. Operands that are not float32 are converted
// first; the products are float32.
#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"

extern "C" void openblas_set_num_threads(int);

namespace q2::cpu {
namespace {

constexpr int64_t kTileRows = 128, kTileCols = 256;

/// A factor in float32, as stored: element (row, k) at row*inner + k, or at k*rows + row if transposed.
struct Factor {
    const float* data;
    int64_t rows, inner;
    bool transposed;
    float scale;

    int64_t ld() const { return transposed ? rows : inner; }
    const float* from_row(int64_t row) const { return data + (transposed ? row : row * inner); }
};

const float* as_float(Scratch& scratch, Tensor x) {
    if (x.dtype == Dtype::f32) return x.as<float>();
    const Bf16* in = x.as<Bf16>();
    float* out = scratch.take<float>(x.size());
    parallel_rows(x.rows, [&](int64_t first, int64_t last) {
        for (int64_t i = first * x.cols; i < last * x.cols; ++i) out[i] = to_float(in[i]);
    });
    return out;
}

Factor factor_of(Scratch& scratch, const Operand& o) {
    if (o.q) {
        require(!o.transposed, "matmul: a quantised operand cannot be transposed");
        return {as_float(scratch, o.q->dense), o.q->rows, o.q->inner, false, *o.q->tensor_scale.as<float>()};
    }
    const int64_t rows = o.transposed ? o.dense.cols : o.dense.rows;
    const int64_t inner = o.transposed ? o.dense.rows : o.dense.cols;
    return {as_float(scratch, o.dense), rows, inner, o.transposed, 1.0f};
}

void multiply(const Factor& a, const Factor& b, float* out, float beta) {
    const int64_t tile_cols = (b.rows + kTileCols - 1) / kTileCols;
    const int64_t tiles = (a.rows + kTileRows - 1) / kTileRows * tile_cols;
    const float alpha = mul(a.scale, b.scale);
    openblas_set_num_threads(1);
    parallel_for(tiles, [&](int64_t tile) {
        const int64_t row = tile / tile_cols * kTileRows, col = tile % tile_cols * kTileCols;
        cblas_sgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans,
                    b.transposed ? CblasNoTrans : CblasTrans, int(std::min(kTileRows, a.rows - row)),
                    int(std::min(kTileCols, b.rows - col)), int(a.inner), alpha, a.from_row(row), int(a.ld()),
                    b.from_row(col), int(b.ld()), beta, out + row * b.rows + col, int(b.rows));
    });
}

}  // namespace

void matmul(Context& ctx, Tensor out, Operand a_operand, Operand b_operand, bool accumulate) {
    Scratch scratch(ctx, "matmul");
    const Factor a = factor_of(scratch, a_operand), b = factor_of(scratch, b_operand);
    require(a.inner == b.inner && out.rows == a.rows && out.cols == b.rows, "matmul: (", a.rows, ", ",
            a.inner, ") x (", b.rows, ", ", b.inner, ")^T into (", out.rows, ", ", out.cols, ")");
    if (out.dtype == Dtype::f32) return multiply(a, b, out.as<float>(), accumulate ? 1.0f : 0.0f);
    require(!accumulate, "matmul: only float32 accumulates");
    float* product = scratch.take<float>(out.size());
    multiply(a, b, product, 0.0f);
    Bf16* to = out.as<Bf16>();
    parallel_rows(out.rows, [&](int64_t first, int64_t last) {
        for (int64_t i = first * out.cols; i < last * out.cols; ++i) to[i] = to_bf16(product[i]);
    });
}

size_t matmul_scratch(int64_t rows, int64_t cols, int64_t inner) {
    return Scratch::rounded(rows * inner * sizeof(float)) + Scratch::rounded(cols * inner * sizeof(float)) +
           Scratch::rounded(rows * cols * sizeof(float));
}

/// A BLAS library keeps its choices to itself.
void time_matmuls(Context&, bool) {}
std::vector<MatmulChoice> matmul_choices(Context&) { return {}; }
void choose_matmuls(Context&, const std::vector<MatmulChoice>&) {}

void check_blas() {
    const int64_t m = 67, n = 131, k = 93;
    std::vector<float> a(m * k), b(n * k), c(m * n);
    const DrawStream draws{1, 2, 3, 4};
    for (int64_t i = 0; i < m * k; ++i) a[i] = draws.uniform(i, 0) - 0.5f;
    for (int64_t i = 0; i < n * k; ++i) b[i] = draws.uniform(i, 1) - 0.5f;
    multiply({a.data(), m, k, false, 1.0f}, {b.data(), n, k, false, 1.0f}, c.data(), 0.0f);
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
            double sum = 0;
            for (int64_t p = 0; p < k; ++p) sum += double(a[i * k + p]) * b[j * k + p];
            check(std::abs(sum - c[i * n + j]) < 1e-4, Exit::device,
                  "the BLAS library computes wrong products (row ", i, ", column ", j, ": ", c[i * n + j],
                  " instead of ", sum, "): install another OpenBLAS, or set OPENBLAS_CORETYPE=Haswell");
        }
}

}  // namespace q2::cpu
