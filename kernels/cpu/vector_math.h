// What the inner loops share: an exponential that vectorises, and maxima of |x|.
#pragma once

#include <atomic>
#include <limits>

#include "ops/ops.h"

namespace q2::cpu {

/// exp(x) to about 1 ulp without a branch or a call, so that loops over it vectorise (Cephes expf: n + r =
/// x log2(e), then a polynomial in r). Below -87.3 it is 0, above 88.3 infinite; a NaN stays a NaN.
inline float vector_exp(float x) {
    constexpr float kRound = 0x1.8p23f;  // adding it leaves the nearest integer in the low mantissa bits
    constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;  // n * high is exact
    const float shifted = x * 1.44269504088896341f + kRound;
    const float n = shifted - kRound;
    const float r = (x - n * kLn2High) - n * kLn2Low;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    const float power = float_of((bits_of(shifted) << 23) + 0x3f800000u);  // 2^n
    const float y = (p * (r * r) + r + 1.0f) * power;
    const float above_zero = x < -87.3f ? 0.0f : y;
    return x > 88.3f ? std::numeric_limits<float>::infinity() : above_zero;
}

/// A maximum gathered by several threads; an op starts it with clear_amax.
inline void clear_amax(Amax* amax) {
    if (amax) amax->bits = 0;
}
inline void raise_amax(Amax* amax, uint32_t bits) {
    if (!amax) return;
    std::atomic_ref<uint32_t> shared(amax->bits);
    uint32_t seen = shared.load();
    while (seen < bits && !shared.compare_exchange_weak(seen, bits)) {
    }
}

}  // namespace q2::cpu
