// Kernels that treat every group of elements alike: how many blocks, and the stride over the groups.
#pragma once

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/reduce.h"
#include "kernels/cuda/device/vectors.h"
#include "kernels/cuda/device_state.h"
#include "kernels/cuda/dispatch.h"

namespace q2::cuda {

constexpr int kThreads = 256;

/// f(i) for this thread's share of 0..count-1.
template <class F>
__device__ __forceinline__ void strided_for(int64_t count, F f) {
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
         i += int64_t(gridDim.x) * blockDim.x)
        f(i);
}

inline Launch strided_launch(Context& ctx, int64_t count,
                             std::source_location where = std::source_location::current()) {
    return {stream_of(ctx), strided_blocks(count, kThreads), kThreads, 0, where};
}

/// An amax that is wanted starts from 0, before the kernel raises it.
inline uint32_t* cleared(Context& ctx, Amax* amax) {
    if (amax) Q2_CUDA(cudaMemsetAsync(amax, 0, sizeof *amax, stream_of(ctx)));
    return amax ? &amax->bits : nullptr;
}

}  // namespace q2::cuda
