// The randomised Hadamard transform of one run (docs/NUMERICS.md section 5): signs, butterflies, 1/sqrt(n).
#pragma once

#include "base/numeric.h"

namespace q2 {

constexpr float hadamard_scale(int n) {
    return n == 16 ? 0.25f : n == 32 ? 0.17677669529663687f : n == 64 ? 0.125f : 0.08838834764831845f;
}

/// In place on x[0..N), N = 16, 32, 64 or 128. signs: N values of +1 or -1.
template <int N>
Q2_HD void hadamard(float* x, const float* signs) {
    for (int i = 0; i < N; ++i) x[i] = mul(x[i], signs[i]);
    for (int h = 1; h < N; h *= 2) {
        for (int base = 0; base < N; base += 2 * h) {
            for (int j = base; j < base + h; ++j) {
                const float a = x[j], b = x[j + h];
                x[j] = add(a, b);
                x[j + h] = sub(a, b);
            }
        }
    }
    for (int i = 0; i < N; ++i) x[i] = mul(x[i], hadamard_scale(N));
}

}  // namespace q2
