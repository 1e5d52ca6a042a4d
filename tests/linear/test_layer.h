// A small linear layer with memory carved as the model carves it, and its data.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "linear/linear.h"
#include "linear/recipes.h"
#include "tests/support/device.h"

namespace q2::test {

using Floats = std::vector<float>;

/// Normal deviates, times exp(tail * another): tail 0 is Gaussian, 1.5 full of outliers.
inline Floats deviates(int64_t count, uint32_t seed, float tail = 0.0f) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    Floats x;
    for (int64_t i = 0; i < count; ++i) {
        const float body = normal(generator);
        x.push_back(tail > 0 ? body * std::exp(tail * normal(generator)) : body);
    }
    return x;
}

/// out (m, n) = a (m, k) b (n, k)^T in double.
inline std::vector<double> exact_product(const Floats& a, const Floats& b, int64_t k) {
    const int64_t m = int64_t(a.size()) / k, n = int64_t(b.size()) / k;
    const std::vector<double> b_wide(b.begin(), b.end());
    std::vector<double> out;
    for (int64_t i = 0; i < m; ++i) {
        const std::vector<double> row(a.begin() + i * k, a.begin() + (i + 1) * k);
        for (int64_t j = 0; j < n; ++j) {
            double sum = 0;
            for (int64_t p = 0; p < k; ++p) sum += row[size_t(p)] * b_wide[size_t(j * k + p)];
            out.push_back(sum);
        }
    }
    return out;
}

struct LayerSize {
    int64_t tokens, in, out;
};

class TestLayer {
  public:
    /// Memory for all `recipes`, poisoned; runs the first of them. act: of x, y, e and dx.
    TestLayer(const std::vector<const Recipe*>& recipes, LayerSize size, Dtype act = Dtype::f32)
        : recipes_(recipes), backend_("cpu", 0), size_(size), act_(act) {
        carve();  // counts
        memory_.assign(arena_.used() + Arena::kAlignment, 0xff);
        void* base = memory_.data();
        size_t space = memory_.size();
        std::align(Arena::kAlignment, arena_.used(), base, space);
        arena_ = Arena(base, arena_.used());
        carve();
        linear.name = "layers.0.test_proj";
        linear.id = 6;
        linear.recipe = recipes.front();
        backend_.context().scratch = scratch_.data();
        backend_.context().scratch_bytes = scratch_.size();
    }

    /// Also clears the gradient.
    void set_weight(const Floats& w) {
        put(linear.weight, w);
        put(linear.grad, Floats(w.size(), 0.0f));
    }
    void prepare_weight(const StepState& state) { q2::prepare_weight(ctx(), linear, &state); }
    /// Overwrites x afterwards, unless a backward may read it.
    void forward(const Floats& x, const StepState& state) {
        put(input.dense, x);
        uint32_t largest = 0;
        for (const float v : get(input.dense)) largest = std::max(largest, magnitude_bits(v));
        input.amax->bits = largest;
        linear_forward(ctx(), linear, y_, input, workspace_, &state);
        if (!wgrad_reads_input(recipes_)) put(input.dense, Floats(x.size(), NAN));
    }
    void backward(const Floats& e, const StepState& state) {
        put(e_, e);
        linear_backward(ctx(), linear, dx_, e_, input, workspace_, &state);
    }
    /// One micro-batch of a step.
    void run(const Floats& x, const Floats& e, const StepState& state) {
        prepare_weight(state);
        forward(x, state);
        backward(e, state);
    }

    Floats y() const { return get(y_); }
    Floats dx() const { return get(dx_); }
    Floats dw() const { return get(linear.grad); }

    Linear linear;
    LinearInput input;

  private:
    Context& ctx() { return backend_.context(); }

    void carve() {
        const auto& [tokens, in, out] = size_;
        const auto take = [&](Dtype type, int64_t rows, int64_t cols) {
            return arena_.take(type, rows, cols, Use::activations);
        };
        linear.weight = take(Dtype::f32, out, in);
        linear.grad = take(Dtype::f32, out, in);
        y_ = take(act_, tokens, out);
        dx_ = take(act_, tokens, in);
        e_ = take(act_, tokens, out);
        const Dtype dense = backend_.ops().dense_dtype;
        carve_weight_copies(linear, recipes_, act_, dense, arena_);
        input = carve_input(recipes_, take(act_, tokens, in), arena_);
        workspace_ = carve_workspace(recipes_, {{in, out}}, tokens, dense, arena_);
        scratch_.resize(linear_scratch(backend_.ops(), recipes_, {in, out}, tokens, true));
    }
    static void put(const Tensor& to, const Floats& values) {
        require(to.size() == int64_t(values.size()), "a test tensor of another size");
        for (size_t i = 0; i < values.size(); ++i) {
            if (to.dtype == Dtype::f32)
                to.as<float>()[i] = values[i];
            else
                to.as<Bf16>()[i] = to_bf16(values[i]);
        }
    }
    static Floats get(const Tensor& from) {
        Floats values;
        for (int64_t i = 0; i < from.size(); ++i)
            values.push_back(from.dtype == Dtype::f32 ? from.as<float>()[i] : to_float(from.as<Bf16>()[i]));
        return values;
    }

    std::vector<const Recipe*> recipes_;
    Backend backend_;
    LayerSize size_;
    Dtype act_;
    Arena arena_;
    std::vector<unsigned char> memory_, scratch_;
    LinearWorkspace workspace_;
    Tensor y_, dx_, e_;
};

}  // namespace q2::test
