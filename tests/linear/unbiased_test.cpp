// What the backward's rounding is for: quantised gradients whose mean is the gradient. The error of the mean
// of n passes, each with its own draws, against the exact products of the recipe's own sources.
#include <cstdio>

#include "tests/linear/test_layer.h"
#include "tests/support/reference_quantizer.h"

namespace q2::test {
namespace {

constexpr LayerSize kSize{128, 128, 128};

/// Follows the mean of a gradient's passes, and its squared error against `exact` over exact's power.
class MeanError {
  public:
    explicit MeanError(std::vector<double> exact) : exact_(std::move(exact)), sum_(exact_.size(), 0.0) {
        for (const double v : exact_) power_ += v * v;
    }

    void add(const Floats& pass) {
        for (size_t i = 0; i < pass.size(); ++i) {
            sum_[i] += pass[i];
            single_ += (pass[i] - exact_[i]) * (pass[i] - exact_[i]) / power_;
        }
        if (++passes_ == next_) {
            next_ *= 4;
            last_ = passes_ * error_of_mean();
            growths_.push_back(last_ / single());
        }
    }
    /// Of a single pass: the mean over all.
    double single() const { return single_ / passes_; }
    /// n times the mean's error at the last n.
    double last() const { return last_; }
    /// The same over a single pass's error at n = 4, 16, ...: all 1 without bias, rising with n where the
    /// error stops falling.
    const std::vector<double>& growths() const { return growths_; }

  private:
    double error_of_mean() const {
        double error = 0;
        for (size_t i = 0; i < sum_.size(); ++i) {
            const double d = sum_[i] / passes_ - exact_[i];
            error += d * d;
        }
        return error / power_;
    }

    std::vector<double> exact_, sum_;
    std::vector<double> growths_;
    double power_ = 0, single_ = 0, last_ = 0;
    int passes_ = 0, next_ = 4;
};

/// The forward's quantised operand if the backward starts from it, else the original.
Floats source_of(const QuantSpec& backward, const QuantSpec& forward, const Floats& x, int64_t rows) {
    if (backward.from == Source::original) return x;
    return reference_quantize(x, rows, int64_t(x.size()) / rows, forward, {}, {}).value;
}

struct LayerErrors {
    MeanError dx, dw;
};

/// passes: a power of 4. tail: how heavy X, W and E are (deviates()).
LayerErrors measure(const Recipe& recipe, int passes, float tail) {
    const auto& [tokens, in, out] = kSize;
    const Floats x = deviates(tokens * in, 1, tail), w = deviates(out * in, 2, tail),
                 e = deviates(tokens * out, 3, tail);
    const Floats w_source = source_of(recipe.dgrad.b, recipe.fprop.b, w, out),
                 x_source = source_of(recipe.wgrad.b, recipe.fprop.a, x, tokens);
    LayerErrors errors = {MeanError(exact_product(e, transposed(w_source, out, in, out), out)),
                          MeanError(exact_product(transposed(e, tokens, out, tokens),
                                                  transposed(x_source, tokens, in, tokens), tokens))};
    LoneLayer layer({&recipe}, kSize);
    StepState state = {.seed = 42};
    layer.set_weight(w);
    layer.prepare_weight(state);
    layer.forward(x, state);
    for (int pass = 0; pass < passes; ++pass) {
        state.step = uint32_t(pass);
        std::fill_n(layer.linear.grad.as<float>(), w.size(), 0.0f);
        layer.backward(e, state);
        errors.dx.add(layer.dx());
        errors.dw.add(layer.dw());
    }
    for (const auto& [what, error] : {std::pair("dX", &errors.dx), std::pair("dW", &errors.dw)})
        std::printf("%-18s tail %.1f, %s: n * error %.4f at 1, %.4f at %d\n", recipe.name.c_str(),
                    double(tail), what, error->single(), error->last(), passes);
    return errors;
}

Recipe edited(const char* text) { return recipe_from_json(nlohmann::json::parse(text)); }

void expect_falling(const MeanError& error, const std::string& what) {
    for (const double growth : error.growths()) {
        EXPECT_GT(growth, 0.7) << what;
        EXPECT_LT(growth, 1.4) << what;
    }
}

TEST(Unbiased, TheMeansErrorFallsAsOneOverN) {
    for (const char* name : {"quartet2", "quartet2_onepass", "quartet2_plus", "tetrajet_v2"}) {
        const LayerErrors errors = measure(find_recipe(name), 256, 0.0f);
        expect_falling(errors.dx, std::string(name) + " dX");
        expect_falling(errors.dw, std::string(name) + " dW");
    }
}

/// The wgrad's X is rounded to nearest: its part of the error levels off near 2e-5 of the power.
TEST(Unbiased, NvidiaFallsToTheBiasOfItsX) {
    const LayerErrors errors = measure(find_recipe("nvidia"), 256, 0.0f);
    expect_falling(errors.dx, "dX");
    EXPECT_LT(errors.dw.last() / 256 - errors.dw.single() / 256, 5e-5);
}

/// Choosing the better of two roundings prefers the draws that were small: a bias of each element that no
/// mean removes. Without a rotation it shows; one that is redrawn averages most of it away.
TEST(Unbiased, FourOverSixOnTheBackwardStopsFalling) {
    const LayerErrors six = measure(edited(R"({"name": "sr_six", "base": "tetrajet_v2",
        "dgrad": {"rotation": 0}, "wgrad": {"rotation": 0}})"),
                                    256, 0.0f);
    expect_falling(six.dx, "six, dX");
    expect_falling(six.dw, "six, dW");
    const LayerErrors four_over_six = measure(edited(R"({"name": "sr_four_over_six", "base": "tetrajet_v2",
        "dgrad": {"rotation": 0, "a": {"rule": "mse"}, "b": {"rule": "mse"}},
        "wgrad": {"rotation": 0, "a": {"rule": "mse"}, "b": {"rule": "mse"}}})"),
                                              256, 0.0f);
    EXPECT_GT(four_over_six.dx.growths().back(), 2.5);
    EXPECT_GT(four_over_six.dw.growths().back(), 2.5);
}

/// One round of signs and Hadamard leaves a run with an outlier far from random (docs/NUMERICS.md section 6).
TEST(Unbiased, OnHeavyTailsOnlyTwoRoundsKeepFalling) {
    const LayerErrors plus = measure(find_recipe("quartet2_plus"), 1024, 1.5f);
    expect_falling(plus.dx, "quartet2_plus dX");
    expect_falling(plus.dw, "quartet2_plus dW");
    for (const char* name : {"quartet2", "quartet2_onepass"}) {
        const LayerErrors errors = measure(find_recipe(name), 1024, 1.5f);
        EXPECT_GT(errors.dx.growths().back(), 2.5) << name;
        EXPECT_GT(errors.dw.growths().back(), 2.5) << name;
    }
}

}  // namespace
}  // namespace q2::test
