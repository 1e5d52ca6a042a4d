// A linear layer alone, on the CPU, with memory carved as the model carves it: for studies and tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "linear/linear.h"
#include "ops/backend.h"

namespace q2 {

using Floats = std::vector<float>;

struct LayerSize {
    int64_t tokens, in, out;
};

class LoneLayer {
  public:
    /// Memory for all `recipes`, poisoned; runs the first of them. act: of x, y, e and dx.
    LoneLayer(const std::vector<const Recipe*>& recipes, LayerSize size, Dtype act = Dtype::f32)
        : recipes_(recipes), backend_("cpu", 0), size_(size), act_(act) {
        carve();  // counts
        memory_.assign(arena_.used() + Arena::kAlignment, 0xff);
        void* base = memory_.data();
        size_t space = memory_.size();
        std::align(Arena::kAlignment, arena_.used(), base, space);
        arena_ = Arena(base, arena_.used());
        carve();
        linear.name = "layers.0.lone_proj";
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

    Context& ctx() { return backend_.context(); }
    const Tensor& e_tensor() const { return e_; }
    const Tensor& dx_tensor() const { return dx_; }

    Linear linear;
    LinearInput input;

  private:
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
        require(to.size() == int64_t(values.size()), "a tensor of another size");
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

}  // namespace q2
