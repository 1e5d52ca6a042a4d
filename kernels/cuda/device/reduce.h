// Reductions over a warp or a block. The order of the additions is fixed by the shape of the block, so the
// same inputs give the same bits.
#pragma once

#include <cstdint>

#include "base/numeric.h"

namespace q2::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

struct Sum {
    template <class T>
    __device__ __forceinline__ T operator()(T a, T b) const {
        return a + b;
    }
};

/// Of floats; a NaN loses, so use it where a NaN arrives by another way too.
struct Max {
    template <class T>
    __device__ __forceinline__ T operator()(T a, T b) const {
        return a < b ? b : a;
    }
};

/// The larger of two magnitudes; a NaN wins.
__device__ __forceinline__ float max_or_nan(float a, float b) {
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
}

/// Every lane gets the result over the `lanes` (a power of two) neighbours it is grouped with.
template <int lanes = kWarp, class T, class Combine>
__device__ __forceinline__ T warp_reduce(T x, Combine combine) {
#pragma unroll
    for (int offset = lanes / 2; offset > 0; offset /= 2)
        x = combine(x, __shfl_xor_sync(kAllLanes, x, offset));
    return x;
}

/// Every thread gets the result over the block, whose size is a multiple of 32; all threads must call.
template <class T, class Combine>
__device__ T block_reduce(T x, Combine combine) {
    __shared__ T of_warp[kWarp];
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
    x = warp_reduce(x, combine);
    __syncthreads();  // of_warp may still be read from a call before
    if (lane == 0) of_warp[warp] = x;
    __syncthreads();
    T total = of_warp[0];
    for (int i = 1; i < warps; ++i) total = combine(total, of_warp[i]);
    return total;
}

/// Raises *amax to `magnitude`. It only grows, so a look first saves most of the atomics, which take turns.
__device__ __forceinline__ void amax_into(uint32_t* amax, uint32_t magnitude) {
    if (magnitude > *static_cast<volatile uint32_t*>(amax)) atomicMax(amax, magnitude);
}

/// Raises *amax to the largest magnitude a block saw; integer maxima are exact in any order.
__device__ __forceinline__ void block_amax_into(uint32_t* amax, uint32_t magnitude) {
    const uint32_t largest = block_reduce(magnitude, Max{});
    if (threadIdx.x == 0) amax_into(amax, largest);
}

}  // namespace q2::cuda
