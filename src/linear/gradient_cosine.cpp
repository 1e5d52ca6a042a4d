#include "linear/gradient_cosine.h"

#include <algorithm>
#include <cmath>

#include "ops/host_copy.h"

namespace q2 {
namespace {

constexpr int64_t kTokens = 32, kRows = 64, kColumns = 32;  // sampled: of dX, of dW, of X
constexpr int64_t kPiece = 256;                             // rows brought to the host together

/// The place of number i of `count` evenly spread over `size`.
int64_t place(int64_t i, int64_t count, int64_t size) { return i * size / count; }

/// f(rows, first, count): all of x, in pieces.
template <class F>
void for_pieces(Context& ctx, const Tensor& x, F f) {
    for (int64_t first = 0; first < x.rows; first += kPiece) {
        const int64_t count = std::min(kPiece, x.rows - first);
        f(host_floats(ctx, x.slice(first, count)), first, count);
    }
}

/// `count` evenly spread rows, one after the other.
std::vector<float> spread_rows(Context& ctx, const Tensor& x, int64_t count) {
    std::vector<float> rows;
    for (int64_t i = 0; i < count; ++i) {
        const std::vector<float> row = host_floats(ctx, x.slice(place(i, count, x.rows), 1));
        rows.insert(rows.end(), row.begin(), row.end());
    }
    return rows;
}

double cosine(const std::vector<double>& exact, const std::vector<float>& own) {
    double dot = 0, exact_power = 0, own_power = 0;
    for (size_t i = 0; i < own.size(); ++i) {
        dot += exact[i] * own[i];
        exact_power += exact[i] * exact[i];
        own_power += double(own[i]) * own[i];
    }
    return dot / std::sqrt(exact_power * own_power);
}

}  // namespace

InputSample sample_input(Context& ctx, const Tensor& x) {
    InputSample sample{.columns = std::min(kColumns, x.cols)};
    for_pieces(ctx, x, [&](const std::vector<float>& rows, int64_t, int64_t count) {
        for (int64_t row = 0; row < count; ++row)
            for (int64_t j = 0; j < sample.columns; ++j)
                sample.values.push_back(rows[size_t(row * x.cols + place(j, sample.columns, x.cols))]);
    });
    return sample;
}

double dgrad_cosine(Context& ctx, const Linear& linear, const Tensor& dx, const Tensor& e) {
    const int64_t tokens = std::min(kTokens, e.rows), in = linear.in(), out = linear.out();
    const std::vector<float> es = spread_rows(ctx, e, tokens);
    std::vector<double> exact(size_t(tokens * in), 0.0);
    for_pieces(ctx, linear.weight, [&](const std::vector<float>& w, int64_t first, int64_t count) {
#pragma omp parallel for
        for (int64_t token = 0; token < tokens; ++token)
            for (int64_t o = 0; o < count; ++o) {
                const double factor = es[size_t(token * out + first + o)];
                for (int64_t j = 0; j < in; ++j)
                    exact[size_t(token * in + j)] += factor * w[size_t(o * in + j)];
            }
    });
    return cosine(exact, spread_rows(ctx, dx, tokens));
}

double wgrad_cosine(Context& ctx, const Linear& linear, const InputSample& x, const Tensor& e) {
    const int64_t rows = std::min(kRows, linear.out());
    std::vector<double> exact(size_t(rows * x.columns), 0.0);
    for_pieces(ctx, e, [&](const std::vector<float>& es, int64_t first, int64_t count) {
#pragma omp parallel for
        for (int64_t row = 0; row < rows; ++row)
            for (int64_t token = 0; token < count; ++token) {
                const double factor = es[size_t(token * e.cols + place(row, rows, e.cols))];
                for (int64_t j = 0; j < x.columns; ++j)
                    exact[size_t(row * x.columns + j)] +=
                        factor * x.values[size_t((first + token) * x.columns + j)];
            }
    });
    const std::vector<float> grad = spread_rows(ctx, linear.grad, rows);
    std::vector<float> own;
    for (int64_t row = 0; row < rows; ++row)
        for (int64_t j = 0; j < x.columns; ++j)
            own.push_back(grad[size_t(row * linear.in() + place(j, x.columns, linear.in()))]);
    return cosine(exact, own);
}

}  // namespace q2
