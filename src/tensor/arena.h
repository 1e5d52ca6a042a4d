// Memory is planned, then used: the function that carves a program's memory runs twice, first on a counting
// arena (no base address), then on the real one. `quartet2 plan` prints the first run.
#pragma once

#include <array>
#include <cstddef>
#include <iterator>

#include "tensor/tensor.h"

namespace q2 {

/// What a carved byte is for; `quartet2 plan` prints a line for each.
enum class Use {
    weights,          ///< float32 masters
    gradients,        ///< of all parameters
    optimizer,        ///< two moments, the step's state
    weight_operands,  ///< the weights as products read them, and tables
    linear_inputs,    ///< saved for the backward: what the wgrads start from
    attention,        ///< saved: Q, K, V and log-sum-exp
    mlp,              ///< saved: gate and up
    norms,            ///< saved: inverse deviations
    residual,         ///< saved: the stream before each norm
    activations,      ///< of the block at hand, and their gradients
    operands,         ///< of the product at hand
    logits,           ///< of a chunk of rows, and losses
    batch,            ///< tokens
    evaluation,       ///< what an evaluation takes beyond the training it lies over
    scratch,          ///< lent to one op at a time
    count
};
constexpr const char* name_of(Use use) {
    constexpr const char* names[] = {"parameters", "gradients", "moments", "weight operands", "linear inputs",
                                     "attention",  "mlp",       "norms",   "residual",        "block",
                                     "operands",   "logits",    "tokens",  "evaluation",      "scratch"};
    static_assert(std::size(names) == size_t(Use::count));
    return names[int(use)];
}

class Arena {
  public:
    static constexpr size_t kAlignment = 256;

    /// A counting arena: views it gives out have an address that must not be read.
    Arena() = default;
    Arena(void* base, size_t capacity) : base_(static_cast<char*>(base)), capacity_(capacity) {}

    bool counting() const { return base_ == nullptr; }
    void* take(size_t bytes, Use use);
    Tensor take(Dtype dtype, int64_t rows, int64_t cols, Use use);
    size_t used() const { return used_; }
    /// A second arena over the bytes taken since `mark` (a value of used()), for views that are never alive
    /// together.
    Arena over(size_t mark) const { return counting() ? Arena() : Arena(base_ + mark, used_ - mark); }
    size_t used_for(Use use) const { return by_use_[int(use)]; }

  private:
    char* base_ = nullptr;
    size_t capacity_ = 0, used_ = 0;
    std::array<size_t, int(Use::count)> by_use_{};
};

}  // namespace q2
