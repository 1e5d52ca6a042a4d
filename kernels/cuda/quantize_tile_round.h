// How each scheme rounds the half run that a thread holds (quantize_tile.h): the elements become signed E2M1
// values in place, and the four blocks get their scales. The arithmetic is that of base/nvfp4.h in a form
// with fewer instructions and the same bits.
#pragma once

#include "kernels/cuda/quantize_round.h"
#include "kernels/cuda/quantize_tile.h"

namespace q2::cuda {

/// A half run's place in the operand.
struct HalfInOperand {
    int64_t row, block;  // of the first of its four blocks
    bool inside[kHalfBlocks];
};

/// A block's maximum, NaN aside: whoever meets one has it in the tensor scale already.
__device__ __forceinline__ float amax_of(const float* x) {
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < kBlock; ++i) largest = fmaxf(largest, fabsf(x[i]));
    return largest;
}

/// eden_encode in place; `may_clip` where values can pass 7.
__device__ __forceinline__ EdenSums eden_round(float* x, float r, bool may_clip) {
    EdenSums sums = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < kBlock; ++i) {
        const float y = mul(x[i], r);
        float q = e2m1_round(y);
        if (may_clip) q = with_sign_of(fminf(fabsf(q), kTop), y);
        sums.num = add(sums.num, mul(y, y));
        sums.den = add(sums.den, mul(y, q));
        x[i] = q;
    }
    return sums;
}

/// The draws of the four blocks, whose positions share a counter.
__device__ __forceinline__ PhiloxWords block_words(const BlockDraws& draws, const HalfInOperand& at) {
    return draws.given_blocks ? PhiloxWords{} : draws.stream().words(uint64_t(at.block), uint32_t(at.row));
}
__device__ __forceinline__ float block_uniform(const BlockDraws& draws, const PhiloxWords& words,
                                               const HalfInOperand& at, int block) {
    if (!draws.given_blocks) return uniform_of(words.word[block]);
    return at.inside[block] ? draws.given_blocks[at.row * (draws.inner / kBlock) + at.block + block] : 0.0f;
}

struct HalfElementMaximum {
    /// Bits of the statistic of a half run whose values lack `factor`, which commutes with the maximum.
    static __device__ uint32_t statistic(float (&x)[kHalf], float factor, const HalfInOperand&) {
        float largest = 0.0f;
#pragma unroll
        for (int i = 0; i < kHalf; ++i) largest = max_or_nan(largest, fabsf(x[i]));
        return magnitude_bits(mul(largest, factor));
    }
};

// ---- MS-EDEN

template <int group>
struct EdenHalf {
    using Statistic = HalfElementMaximum;
    static constexpr bool kReciprocals = true;
    static __device__ float scale_of(float amax) { return tensor_scale(amax, kTopEden, kScaleLimitEden); }

    static __device__ void encode(const HalfInOperand& at, float (&x)[kHalf], float s_t,
                                  const TileShared& shared, const BlockDraws& draws,
                                  uint8_t (&scale)[kHalfBlocks]) {
        EdenSums sums[kHalfBlocks];
        const float inv = div(1.0f, mul(kTopEden, s_t));
#pragma unroll
        for (int b = 0; b < kHalfBlocks; ++b) {
            scale[b] = e4m3_rn(mul(amax_of(x + b * kBlock), inv));
            sums[b] = eden_round(x + b * kBlock, shared.reciprocals[scale[b]], scale[b] < kFirstNormalScale);
        }
        const PhiloxWords words = block_words(draws, at);
        const float shared_correction = group == kSide ? correction_of_run(sums) : 1.0f;
#pragma unroll
        for (int b = 0; b < kHalfBlocks; ++b) {
            const float correction = group == kSide ? shared_correction : eden_correction(sums[b]);
            scale[b] = e4m3_sr(mul(e4m3_value(scale[b]), correction), block_uniform(draws, words, at, b));
        }
    }

    /// Both halves' blocks, in the pairs of eden_group_sums.
    static __device__ float correction_of_run(const EdenSums (&s)[kHalfBlocks]) {
        EdenSums half = {add(add(s[0].num, s[1].num), add(s[2].num, s[3].num)),
                         add(add(s[0].den, s[1].den), add(s[2].den, s[3].den))};
        half.num = add(half.num, __shfl_xor_sync(kAllLanes, half.num, kPartnerLane));
        half.den = add(half.den, __shfl_xor_sync(kAllLanes, half.den, kPartnerLane));
        return eden_correction(half);
    }
};

/// Range post_hoc: both passes compute the corrected pseudo scales.
struct EdenPostHocHalf {
    using Statistic = EdenPostHocHalf;
    static constexpr bool kReciprocals = false;
    static __device__ float scale_of(float largest) { return post_hoc_tensor_scale(largest); }

    /// The maximum over bit patterns, so that a NaN reaches the tensor scale.
    static __device__ float corrected(float* x) {
        const float pseudo = eden_pseudo_scale(block_amax(x));
        return mul(pseudo, eden_correction(eden_round(x, pseudo == 0.0f ? 0.0f : div(1.0f, pseudo), false)));
    }
    static __device__ uint32_t statistic(float (&x)[kHalf], float factor, const HalfInOperand& at) {
        uint32_t largest = 0;
        scale_all(x, factor);
#pragma unroll
        for (int b = 0; b < kHalfBlocks; ++b) {
            const uint32_t bits = magnitude_bits(corrected(x + b * kBlock));
            if (at.inside[b]) largest = max(largest, bits);
        }
        return largest;
    }
    static __device__ void encode(const HalfInOperand& at, float (&x)[kHalf], float s_t, const TileShared&,
                                  const BlockDraws& draws, uint8_t (&scale)[kHalfBlocks]) {
        const PhiloxWords words = block_words(draws, at);
#pragma unroll
        for (int b = 0; b < kHalfBlocks; ++b)
            scale[b] = e4m3_sr(div(corrected(x + b * kBlock), s_t), block_uniform(draws, words, at, b));
    }
};

// ---- One candidate, to nearest or stochastically

struct NearestSixHalf {
    using Statistic = HalfElementMaximum;
    static constexpr bool kReciprocals = true;
    static __device__ float scale_of(float amax) { return tensor_scale(amax, kTop, scale_limit(Rule::six)); }

    static __device__ void encode(const HalfInOperand&, float (&x)[kHalf], float s_t,
                                  const TileShared& shared, const BlockDraws&,
                                  uint8_t (&scale)[kHalfBlocks]) {
        const float inv = div(1.0f, mul(kTop, s_t));
#pragma unroll
        for (int b = 0; b < kHalfBlocks; ++b) {
            scale[b] = e4m3_rn(mul(amax_of(x + b * kBlock), inv));
            eden_round(x + b * kBlock, shared.reciprocals[scale[b]], scale[b] < kFirstNormalScale);
        }
    }
};

struct StochasticSixHalf {
    using Statistic = HalfElementMaximum;
    static constexpr bool kReciprocals = true;
    static __device__ float scale_of(float amax) {
        return tensor_scale(amax, kTopStochastic, scale_limit(Rule::six));
    }

    static __device__ void encode(const HalfInOperand& at, float (&x)[kHalf], float s_t,
                                  const TileShared& shared, const BlockDraws& draws,
                                  uint8_t (&scale)[kHalfBlocks]) {
        const float inv = div(1.0f, mul(kTopStochastic, s_t));
#pragma unroll
        for (int b = 0; b < kHalfBlocks; ++b) {
            scale[b] = e4m3_rn(mul(amax_of(x + b * kBlock), inv));
            float u[kBlock];
            draws.elements({at.row, at.block + b, at.inside[b]}, u);
            const float r = shared.reciprocals[scale[b]];
#pragma unroll
            for (int i = 0; i < kBlock; ++i) {
                float& value = x[b * kBlock + i];
                value = e2m1_round_sr(mul(value, r), u[i]);
            }
        }
    }
};

// ---- Write

/// Codes and scales from this thread, where they are wanted, and the dense values into the staging area.
__device__ __forceinline__ void put_half(const QuantizeOutput& out, TileShared& shared,
                                         const HalfPlace& place, const HalfInOperand& at, float (&x)[kHalf],
                                         const uint8_t (&scale)[kHalfBlocks]) {
#pragma unroll
    for (int b = 0; b < kHalfBlocks; ++b) {
        float* value = x + b * kBlock;
        const int64_t block = at.row * (out.inner / kBlock) + at.block + b;
        if (out.codes && at.inside[b]) {
            int codes[kBlock];
#pragma unroll
            for (int i = 0; i < kBlock; ++i) codes[i] = e2m1_code(value[i]);
            const PackedCodes packed = pack_codes(codes);
            *reinterpret_cast<uint2*>(out.codes + block * (kBlock / 2)) = {packed.half[0], packed.half[1]};
        }
        if (out.scales && at.inside[b]) out.scales[block] = scale[b];
        if (!out.dense) continue;
        const float scale_value = e4m3_value(scale[b]);
#pragma unroll
        for (int i = 0; i < kBlock; ++i) value[i] = mul(value[i], scale_value);
        stage_block(shared, place, b, value);
    }
}

}  // namespace q2::cuda
