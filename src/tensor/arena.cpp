#include "tensor/arena.h"

namespace q2 {

void* Arena::take(size_t bytes, Use use) {
    const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    require(counting() || used_ + rounded <= capacity_, "the arena of ", capacity_,
            " bytes is too small for ", rounded, " more bytes of ", name_of(use), " after ", used_);
    // A counting arena starts at one alignment, so that no view it gives out looks absent (null).
    char* start = counting() ? reinterpret_cast<char*>(kAlignment) + used_ : base_ + used_;
    used_ += rounded;
    by_use_[int(use)] += rounded;
    return start;
}

Tensor Arena::take(Dtype dtype, int64_t rows, int64_t cols, Use use) {
    require(rows >= 0 && cols >= 0, "a tensor of ", rows, " x ", cols);
    return {take(size_t(rows) * size_t(cols) * size_of(dtype), use), dtype, rows, cols};
}

}  // namespace q2
