// The randomised Hadamard transform of one run (docs/NUMERICS.md section 5): signs, butterflies, 1/sqrt(n).
#pragma once

#include "base/numeric.h"

namespace q2 {

constexpr float hadamard_scale(int n) {
    return n == 16 ? 0.25f : n == 32 ? 0.17677669529663687f : n == 64 ? 0.125f : 0.08838834764831845f;
}

/// In place on Lanes interleaved runs, element i of run l at x[i * Lanes + l]; N = 16, 32, 64 or 128. signs:
/// N values of +1 or -1, the same for every run.
template <int N, int Lanes = 1>
Q2_HD void hadamard(float* x, const float* signs) {
    for (int i = 0; i < N; ++i) {
        Q2_SIMD
        for (int l = 0; l < Lanes; ++l) x[i * Lanes + l] = mul(x[i * Lanes + l], signs[i]);
    }
    for (int h = 1; h < N; h *= 2) {
        for (int base = 0; base < N; base += 2 * h) {
            Q2_SIMD
            for (int j = base * Lanes; j < (base + h) * Lanes; ++j) {
                const float a = x[j], b = x[j + h * Lanes];
                x[j] = add(a, b);
                x[j + h * Lanes] = sub(a, b);
            }
        }
    }
    Q2_SIMD
    for (int i = 0; i < N * Lanes; ++i) x[i] = mul(x[i], hadamard_scale(N));
}

/// The same of runs of `size` elements, known at run time.
template <int Lanes = 1>
inline void hadamard_of(int size, float* x, const float* signs) {
    switch (size) {
        case 16:
            return hadamard<16, Lanes>(x, signs);
        case 32:
            return hadamard<32, Lanes>(x, signs);
        case 64:
            return hadamard<64, Lanes>(x, signs);
        default:
            return hadamard<128, Lanes>(x, signs);
    }
}

}  // namespace q2
