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

template <int W, class T>
__device__ __forceinline__ void store(T* to, const float (&x)[W]) {
    Vector<T, W> out;
#pragma unroll
    for (int i = 0; i < W; ++i) out.v[i] = from_float<T>(x[i]);
    *reinterpret_cast<Vector<T, W>*>(to) = out;
}

/// What a stored value reads back as.
template <class T>
__device__ __forceinline__ float rounded_to(float x) {
    return to_float(from_float<T>(x));
}

}  // namespace q2::cuda
