// The number formats: bfloat16, E4M3 and E2M1, as host/device functions that every backend shares.
//
// Arithmetic is float32, one IEEE operation at a time (docs/NUMERICS.md). On the device the intrinsics below
// cannot be contracted into an FMA; host code is compiled with -ffp-contract=off.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define Q2_HD __host__ __device__ __forceinline__
#define Q2_SIMD
#else
#define Q2_HD inline
#define Q2_SIMD \
    _Pragma("omp simd")  // short loops of independent elements: keeps the compiler from unrolling them first
#endif

namespace q2 {

#if defined(__CUDA_ARCH__)
Q2_HD float mul(float a, float b) { return __fmul_rn(a, b); }
Q2_HD float add(float a, float b) { return __fadd_rn(a, b); }
Q2_HD float sub(float a, float b) { return __fsub_rn(a, b); }
Q2_HD float div(float a, float b) { return __fdiv_rn(a, b); }
Q2_HD float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }  // only where a * b is exact
Q2_HD uint32_t bits_of(float x) { return __float_as_uint(x); }
Q2_HD float float_of(uint32_t bits) { return __uint_as_float(bits); }
#else
Q2_HD float mul(float a, float b) { return a * b; }
Q2_HD float add(float a, float b) { return a + b; }
Q2_HD float sub(float a, float b) { return a - b; }
Q2_HD float div(float a, float b) { return a / b; }
Q2_HD float fused(float a, float b, float c) { return a * b + c; }  // only where a * b is exact
Q2_HD uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
Q2_HD float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }
#endif

/// |x| as bits. Ordered as integers, magnitudes compare as floats do, infinity wins over them and NaN over
/// all.
Q2_HD uint32_t magnitude_bits(float x) { return bits_of(x) & 0x7fffffffu; }

// ---- bfloat16 ----

struct Bf16 {
    uint16_t bits;
};

Q2_HD float to_float(Bf16 x) { return float_of(uint32_t(x.bits) << 16); }
Q2_HD float to_float(float x) { return x; }

/// Nearest even; a NaN stays a NaN.
Q2_HD Bf16 to_bf16(float x) {
    const uint32_t u = bits_of(x);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return {uint16_t((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : rounded)};
}

template <class T>
Q2_HD T from_float(float x);
template <>
Q2_HD float from_float<float>(float x) {
    return x;
}
template <>
Q2_HD Bf16 from_float<Bf16>(float x) {
    return to_bf16(x);
}

// ---- E4M3FN, non-negative: bias 7, largest 448 (code 126); 0x7f, a NaN, is never written ----

constexpr int kE4m3Max = 126;

/// The code's exponent and mantissa moved into a float32, then scaled by 2^(127-7); subnormals come out right
/// too.
Q2_HD float e4m3_value(uint8_t code) { return mul(float_of(uint32_t(code) << 20), 0x1p120f); }

/// Nearest even, saturating; x >= 0. A NaN saturates: it reaches `value` through the tensor scale instead.
Q2_HD uint8_t e4m3_rn(float x) {
    const float a = x < 448.0f ? x : 448.0f;
    const uint32_t u = bits_of(a);
    const uint32_t normal = ((u + 0x7ffffu + ((u >> 20) & 1u)) >> 20) - (120u << 3);
    const uint32_t subnormal = bits_of(add(a, 0x1p14f)) - bits_of(0x1p14f);  // multiples of 2^-9
    return uint8_t(a < 0x1p-6f ? subnormal : normal);
}

/// The largest code whose value is at most x; x >= 0.
Q2_HD uint8_t e4m3_floor(float x) {
    const float a = x < 448.0f ? x : 448.0f;
    return uint8_t(a < 0x1p-6f ? uint32_t(mul(a, 512.0f)) : (bits_of(a) >> 20) - (120u << 3));
}

/// Probability that stochastic rounding takes the code above e4m3_floor(x).
Q2_HD float e4m3_prob_up(float x) {
    const uint8_t code = e4m3_floor(x);
    if (code >= kE4m3Max) return 0.0f;
    const float lo = e4m3_value(code), hi = e4m3_value(uint8_t(code + 1));
    return div(sub(x, lo), sub(hi, lo));
}

/// Up iff u < e4m3_prob_up(x). The gap is a power of two, so it may as well multiply u.
Q2_HD uint8_t e4m3_sr(float x, float u) {
    const uint8_t code = e4m3_floor(x);
    const float lo = e4m3_value(code), gap = sub(e4m3_value(uint8_t(code + 1)), lo);
    return uint8_t(code + (code < kE4m3Max && mul(u, gap) < sub(x, lo) ? 1 : 0));
}

// ---- E2M1: magnitudes 0 0.5 1 1.5 2 3 4 6; bit 3 is the sign, and the sign of zero is kept ----

Q2_HD int e2m1_sign(float x) { return int((bits_of(x) >> 28) & 8u); }

/// Magnitude of a code's low three bits: c/2 up to 2, then 3, 4, 6.
Q2_HD float e2m1_magnitude(int code) {
    const int c = code & 7;
    return float(c < 5 ? c : c < 7 ? 2 * c - 4 : 12) * 0.5f;
}
Q2_HD float e2m1_value(int code) {
    return float_of(bits_of(e2m1_magnitude(code)) | (uint32_t(code & 8) << 28));
}

/// Nearest, ties to the even code, saturating at 6: one comparison for each midpoint.
Q2_HD int e2m1_rn(float x) {
    const float a = float_of(magnitude_bits(x));
    const int code =
        (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
    return code | e2m1_sign(x);
}

// The same roundings from value to value, in fewer instructions: E2M1 keeps one bit below the leading one,
// and multiples of 0.5 below 1, so adding 2^22 (or 1.5 times that, for both signs) times the magnitude's
// power of two, at least 1, leaves exactly the bits that stay.

Q2_HD float with_sign_of(float magnitude, float x) {
    return float_of(magnitude_bits(magnitude) | (bits_of(x) & 0x80000000u));
}

/// The power of two at or below |x|, at least 1.
Q2_HD float e2m1_binade(float x) {
    const float a = float_of(magnitude_bits(x));
    return float_of(bits_of(a > 1.0f ? a : 1.0f) & 0x7f800000u);
}

/// e2m1_value(e2m1_rn(x)) for |x| < 7, but for the sign of zero; beyond, what E2M1 with more exponents would
/// hold, 8 or more.
Q2_HD float e2m1_round_unsigned_zero(float x) {
    const float binade = e2m1_binade(x);
    return fused(binade, -0x1.8p22f, fused(binade, 0x1.8p22f, x));
}
Q2_HD float e2m1_round(float x) { return with_sign_of(e2m1_round_unsigned_zero(x), x); }

/// The code of a value that E2M1 holds: scaled so that 0.5 is float32's subnormal, the bits line up.
Q2_HD int e2m1_code(float value) {
    const uint32_t bits = bits_of(mul(value, 0x1p-126f));
    return int((bits >> 22 & 7u) | (bits >> 28 & 8u));
}

/// Stochastic between the neighbours lo <= min(|x|, 6) <= hi: up iff u < (a - lo) / (hi - lo).
Q2_HD int e2m1_sr(float x, float u) {
    const float m = float_of(magnitude_bits(x));
    const float a = m < 6.0f ? m : 6.0f;
    const int code =
        (a >= 0.5f) + (a >= 1.0f) + (a >= 1.5f) + (a >= 2.0f) + (a >= 3.0f) + (a >= 4.0f) + (a >= 6.0f);
    if (code == 7) return 7 | e2m1_sign(x);
    const float lo = e2m1_magnitude(code), hi = e2m1_magnitude(code + 1);
    const bool up = mul(u, sub(hi, lo)) < sub(a, lo);  // the gap is a power of two: exact
    return (code + up) | e2m1_sign(x);
}

/// e2m1_value(e2m1_sr(x, u)).
Q2_HD float e2m1_round_sr(float x, float u) {
    const float m = float_of(magnitude_bits(x));
    const float a = m < 6.0f ? m : 6.0f, gap = mul(e2m1_binade(a), 0.5f);
    const float lo = a < 1.0f ? (a < 0.5f ? 0.0f : 0.5f) : float_of(bits_of(a) & 0xffc00000u);
    return with_sign_of(mul(u, gap) < sub(a, lo) ? add(lo, gap) : lo, x);
}

}  // namespace q2
