#include "linear/bias_study.h"

#include "linear/quant_error.h"

namespace q2 {
namespace {

/// The sum of passes, and the squared error of their mean.
class Mean {
  public:
    explicit Mean(std::vector<double> exact) : exact_(std::move(exact)), sum_(exact_.size(), 0.0) {}

    void add(const Floats& pass) {
        for (size_t i = 0; i < pass.size(); ++i) sum_[i] += pass[i];
    }
    double relative_error(int64_t n) const {
        SquaredError s;
        for (size_t i = 0; i < sum_.size(); ++i) {
            const double d = sum_[i] / double(n) - exact_[i];
            s.error += d * d;
            s.power += exact_[i] * exact_[i];
        }
        return s.relative();
    }

  private:
    std::vector<double> exact_, sum_;
};

/// out (rows, cols) = sum over k of a(row, k) b(k, col); at(a, row, k) and at(b, k, col) read the factors.
template <class A, class B>
std::vector<double> product(int64_t rows, int64_t cols, int64_t inner, A a, B b) {
    std::vector<double> out(size_t(rows * cols), 0.0);
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t k = 0; k < inner; ++k)
            for (int64_t j = 0; j < cols; ++j) out[size_t(i * cols + j)] += double(a(i, k)) * b(k, j);
    return out;
}

/// What the backward starts from (bias_study.h).
Floats source_of(const QuantSpec& backward, const QuantSpec& forward, const Rotation& rotation, Floats x,
                 int64_t rows) {
    if (backward.from == Source::original || forward.rounding != Rounding::nearest || rotation.size > 0)
        return x;
    Backend backend("cpu", 0);
    const Tensor view{x.data(), Dtype::f32, rows, int64_t(x.size()) / rows};
    return quantised_values(backend.context(), view, {"", forward, {}}, 0);
}

}  // namespace

BiasCurves study_bias(const Recipe& r, LayerSize size, const Floats& x, const Floats& w, const Floats& e,
                      int64_t passes, uint64_t seed) {
    const auto& [tokens, in, out] = size;
    const Floats ws = source_of(r.dgrad.b, r.fprop.b, r.fprop.rotation, w, out);
    const Floats xs = source_of(r.wgrad.b, r.fprop.a, r.fprop.rotation, x, tokens);
    const auto at = [](const Floats& m, int64_t cols) {
        return [&m, cols](int64_t row, int64_t col) { return m[size_t(row * cols + col)]; };
    };
    // Named anew: clang before 16 captures no structured binding.
    const auto e_transposed = [&e, out = out](int64_t row, int64_t k) { return e[size_t(k * out + row)]; };
    Mean dx(product(tokens, in, out, at(e, out), at(ws, in)));
    Mean dw(product(out, in, tokens, e_transposed, at(xs, in)));
    LoneLayer layer({&r}, size);
    layer.set_weight(w);
    BiasCurves curves;
    for (int64_t pass = 1; pass <= passes; ++pass) {
        const StepState state{.seed = seed, .step = uint32_t(pass)};
        std::fill_n(layer.linear.grad.as<float>(), w.size(), 0.0f);
        layer.run(x, e, state);
        dx.add(layer.dx());
        dw.add(layer.dw());
        if ((pass & (pass - 1)) != 0) continue;
        curves.n.push_back(pass);
        curves.dx.push_back(dx.relative_error(pass));
        curves.dw.push_back(dw.relative_error(pass));
    }
    return curves;
}

}  // namespace q2
