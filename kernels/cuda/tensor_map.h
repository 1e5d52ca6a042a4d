// Descriptions of matrices for the bulk tensor copy of Hopper and later.
#pragma once

#include <cuda.h>

#include "tensor/tensor.h"

namespace q2::cuda {

constexpr int kPanel =
    64;  ///< columns of a box of bfloat16: the 128 bytes over which shared memory is swizzled

/// Boxes of `rows` x kPanel of x (batch sequence, cols), bfloat16, each from one sequence: rows past its end
/// and columns past x's read as 0.
CUtensorMap tensor_map(Tensor x, int64_t batch, int64_t sequence, int rows);

}  // namespace q2::cuda
