// Memory is planned, then used: the function that carves a program's memory runs twice, first on a counting
// arena (no base address), then on the real one. `quartet2 plan` prints the first run.
#pragma once

#include <array>
#include <cstddef>

#include "tensor/tensor.h"

namespace q2 {

/// What a carved byte is for; `quartet2 plan` prints a line for each.
enum class Use { weights, gradients, optimizer, weight_codes, activations, operands, scratch, batch, count };
constexpr const char* name_of(Use use) {
    constexpr const char* names[] = {"weights",     "gradients", "optimizer", "weight codes",
                                     "activations", "operands",  "scratch",   "batch"};
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
