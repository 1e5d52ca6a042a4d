// NVFP4 block quantisers (docs/NUMERICS.md sections 3, 4 and 6), shared bit for bit by every backend.
//
// A block is 16 consecutive elements of an operand's inner dimension with one E4M3 scale; a tile is 16 rows
// of such blocks with one scale between them. value = e2m1(code) * (e4m3(scale) * tensor_scale), the inner
// product first.
#pragma once

#include "base/numeric.h"

namespace q2 {

constexpr int kBlock = 16;

/// How a block's scale is chosen (Four Over Six, arXiv 2512.02010; `search` is this project's own).
enum class Rule { six, mse, mae, absmax, search };

// ---- Tensor scales ----

constexpr float kTop = 6.0f;
constexpr float kTopStochastic = 6.0f / (17.0f / 16.0f);  // so that rounding up cannot pass 6
constexpr float kFourStochastic = 4.0f / (17.0f / 16.0f);
constexpr float kTopEden = 6.0f / ((17.0f / 16.0f) * 0.93f);  // clips a little; the correction repairs it

/// Largest block scale: 448, or 256 where a later step (a 4/6 candidate, a correction) may raise it.
constexpr float scale_limit(Rule rule) { return rule == Rule::six ? 448.0f : 256.0f; }
constexpr float kScaleLimitEden = 256.0f;

/// A tensor that vanishes keeps s_t = 1 and quantises to zeros; a NaN or an infinity passes through.
Q2_HD float tensor_scale(float amax, float top, float limit) {
    return amax < 0x1p-100f ? 1.0f : div(amax, mul(top, limit));
}

Q2_HD float block_amax(const float x[kBlock]) {
    uint32_t largest = 0;
    for (int i = 0; i < kBlock; ++i) {
        const uint32_t m = magnitude_bits(x[i]);
        largest = m > largest ? m : largest;
    }
    return float_of(largest);
}

/// r = 1 / (e4m3(scale) * s_t), or 0 where the scale is 0.
Q2_HD float scale_reciprocal(uint8_t scale, float s_t) {
    return scale == 0 ? 0.0f : div(1.0f, mul(e4m3_value(scale), s_t));
}

/// A block's codes as 8 bytes, the even element in the low nibble: the first eight codes, then the others.
struct PackedCodes {
    uint32_t half[2];
};
Q2_HD PackedCodes pack_codes(const int codes[kBlock]) {
    PackedCodes packed = {{0, 0}};
    for (int half = 0; half < 2; ++half)
        for (int i = 0; i < 8; ++i) packed.half[half] |= uint32_t(codes[half * 8 + i]) << (4 * i);
    return packed;
}
Q2_HD int unpack_code(PackedCodes packed, int i) { return int(packed.half[i / 8] >> (4 * (i % 8))) & 15; }

// ---- Round to nearest or stochastically, choosing among scale candidates ----

/// A candidate maps the block's maximum to m, then moves the scale's code by `step`.
struct Candidate {
    float m;
    int step;
};

struct Candidates {
    Candidate list[6];
    int count;
};

Q2_HD constexpr Candidates nearest_candidates(Rule rule) {
    return {{{6, 0}, {4, 0}, {6, 1}, {6, -1}, {4, 1}, {4, -1}},
            rule == Rule::six      ? 1
            : rule == Rule::search ? 6
                                   : 2};
}

Q2_HD Candidates stochastic_candidates(Rule rule) {
    return {{{kTopStochastic, 0}, {kFourStochastic, 0}}, rule == Rule::six ? 1 : 2};
}

Q2_HD uint8_t candidate_scale(float amax, float s_t, Candidate c) {
    const int code = e4m3_rn(mul(amax, div(1.0f, mul(c.m, s_t)))) + c.step;
    return uint8_t(code < 0 ? 0 : code > kE4m3Max ? kE4m3Max : code);
}

/// One row's part of the rule's error: sum of d*d (mse, search), sum of |d| (mae), or the largest |d|
/// (absmax).
Q2_HD float row_error(const float x[kBlock], const int codes[kBlock], float scale_value, Rule rule) {
    float d[kBlock];
    Q2_SIMD
    for (int i = 0; i < kBlock; ++i) {
        const float difference = sub(x[i], mul(e2m1_value(codes[i]), scale_value));
        d[i] = rule == Rule::mae || rule == Rule::absmax ? float_of(magnitude_bits(difference))
                                                         : mul(difference, difference);
    }
    float error = 0.0f;
    for (int i = 0; i < kBlock; ++i) {
        if (rule == Rule::absmax)
            error = d[i] > error ? d[i] : error;
        else
            error = add(error, d[i]);
    }
    return error;
}

/// The codes of one row under the scale given by its reciprocal r: to nearest, or stochastically with the
/// row's draws.
struct NearestCodes {
    Q2_HD void operator()(int, const float x[kBlock], float r, int codes[kBlock]) const {
        Q2_SIMD
        for (int i = 0; i < kBlock; ++i) codes[i] = e2m1_rn(mul(x[i], r));
    }
};

struct StochasticCodes {
    const float (*uniforms)[kBlock];  // (Rows, 16)
    Q2_HD void operator()(int row, const float x[kBlock], float r, int codes[kBlock]) const {
        for (int i = 0; i < kBlock; ++i) codes[i] = e2m1_sr(mul(x[i], r), uniforms[row][i]);
    }
};

/// Quantises a block (Rows = 1) or a tile (Rows = 16) and returns its scale. A later candidate wins only if
/// its error is strictly smaller, so a NaN keeps the first.
template <int Rows, class Encode>
Q2_HD uint8_t quantize_block(const float (*x)[kBlock], float s_t, Candidates candidates, Rule rule,
                             Encode encode, int (*codes)[kBlock]) {
    float amax = 0.0f;
    for (int row = 0; row < Rows; ++row) {
        const float a = block_amax(x[row]);
        amax = bits_of(a) > bits_of(amax) ? a : amax;
    }
    uint8_t best_scale = 0;
    float best_error = 0.0f;
    for (int c = 0; c < candidates.count; ++c) {
        const uint8_t scale = candidate_scale(amax, s_t, candidates.list[c]);
        const float r = scale_reciprocal(scale, s_t), scale_value = mul(e4m3_value(scale), s_t);
        int trial[Rows][kBlock];
        float error = 0.0f;
        for (int row = 0; row < Rows; ++row) {
            encode(row, x[row], r, trial[row]);
            if (candidates.count == 1) continue;
            const float e = row_error(x[row], trial[row], scale_value, rule);
            if (rule == Rule::absmax)
                error = e > error ? e : error;
            else
                error = add(error, e);
        }
        if (c > 0 && !(error < best_error)) continue;
        best_scale = scale;
        best_error = error;
        for (int row = 0; row < Rows; ++row) {
            Q2_SIMD
            for (int i = 0; i < kBlock; ++i) codes[row][i] = trial[row][i];
        }
    }
    return best_scale;
}

// ---- MS-EDEN (Quartet II, arXiv 2601.22813): codes to nearest, an unbiased correction moved into the scale
// ------

/// A block's codes and its two sums, num = sum(y*y) and den = sum(y*q), whose quotient is the EDEN
/// correction.
struct EdenSums {
    float num, den;
};

Q2_HD EdenSums eden_encode(const float x[kBlock], float r, int codes[kBlock]) {
    float yy[kBlock], yq[kBlock];
    Q2_SIMD
    for (int i = 0; i < kBlock; ++i) {
        const float y = mul(x[i], r);
        codes[i] = e2m1_rn(y);
        yy[i] = mul(y, y);
        yq[i] = mul(y, e2m1_value(codes[i]));
    }
    EdenSums sums = {0.0f, 0.0f};
    for (int i = 0; i < kBlock; ++i) {
        sums.num = add(sums.num, yy[i]);
        sums.den = add(sums.den, yq[i]);
    }
    return sums;
}

Q2_HD float eden_correction(EdenSums sums) { return sums.den == 0.0f ? 1.0f : div(sums.num, sums.den); }

/// Eight blocks' sums as one correction group of 128 elements, pairwise.
Q2_HD EdenSums eden_group_sums(const EdenSums b[8]) {
    const float num = add(add(add(b[0].num, b[1].num), add(b[2].num, b[3].num)),
                          add(add(b[4].num, b[5].num), add(b[6].num, b[7].num)));
    const float den = add(add(add(b[0].den, b[1].den), add(b[2].den, b[3].den)),
                          add(add(b[4].den, b[5].den), add(b[6].den, b[7].den)));
    return {num, den};
}

/// The scale before correction (range two_pass): the candidate (top, 0).
Q2_HD uint8_t eden_base_scale(float amax, float s_t) { return candidate_scale(amax, s_t, {kTopEden, 0}); }

/// The scale that stands in while the tensor's maximum is unknown (range post_hoc): amax/top cut to 4
/// mantissa bits.
Q2_HD float eden_pseudo_scale(float amax) {
    const float pseudo = float_of(bits_of(mul(amax, 1.0f / kTopEden)) & 0xfff80000u);
    return pseudo < 0x1p-100f ? 0.0f : pseudo;
}

/// s_t of post_hoc from the largest corrected pseudo scale.
Q2_HD float post_hoc_tensor_scale(float largest) {
    return largest == 0.0f ? 1.0f : div(largest, kScaleLimitEden);
}

}  // namespace q2
