// The device part of a product's alpha.
#pragma once

#include <cuda_runtime.h>

namespace q2::cuda {

/// *alpha = *a * *b, on the device.
void multiply_scales(cudaStream_t, float* alpha, const float* a, const float* b);

}  // namespace q2::cuda
