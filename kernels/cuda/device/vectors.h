// Vector loads and stores: W elements of float32 or bfloat16 as float32 in registers, 16 bytes an access
// where W allows it. Addresses must be aligned to the access: use vector_width() to choose W.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/numeric.h"

namespace q2::cuda {

template <class T, int W>
struct alignas(sizeof(T) * W < 16 ? sizeof(T) * W : 16) Vector {
    T v[W];
};

template <int W, class T>
__device__ __forceinline__ void load(const T* from, float (&x)[W]) {
    const Vector<T, W> in = *reinterpret_cast<const Vector<T, W>*>(from);
#pragma unroll
    for (int i = 0; i < W; ++i) x[i] = to_float(in.v[i]);
}

/// Both rounded as to_bf16 does, in one instruction; `low` comes first in memory.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

template <int W, class T>
__device__ __forceinline__ void store(T* to, const float (&x)[W]) {
    Vector<T, W> out;
    if constexpr (W % 2 == 0 && sizeof(T) == sizeof(Bf16)) {
#pragma unroll
        for (int i = 0; i < W; i += 2) {
            const uint32_t both = pack_bf16(x[i], x[i + 1]);
            out.v[i] = {uint16_t(both)};
            out.v[i + 1] = {uint16_t(both >> 16)};
        }
    } else {
#pragma unroll
        for (int i = 0; i < W; ++i) out.v[i] = from_float<T>(x[i]);
    }
    *reinterpret_cast<Vector<T, W>*>(to) = out;
}

/// What a stored value reads back as.
template <class T>
__device__ __forceinline__ float rounded_to(float x) {
    if constexpr (sizeof(T) == sizeof(float)) return x;
    return float_of(pack_bf16(0.0f, x) & 0xffff0000u);
}

}  // namespace q2::cuda
