// Checked calls: an error names the call, its place in the source and what CUDA says.
#pragma once

#include <cuda_runtime.h>

#include <source_location>

#include "base/check.h"

namespace q2::cuda {

inline void check_cuda(cudaError_t error, const char* call,
                       std::source_location where = std::source_location::current()) {
    if (error == cudaSuccess) return;
    fail(Exit::device, where.file_name(), ":", where.line(), ": ", call, " failed: ", cudaGetErrorName(error),
         ": ", cudaGetErrorString(error));
}

#define Q2_CUDA(call) ::q2::cuda::check_cuda((call), #call)

}  // namespace q2::cuda
