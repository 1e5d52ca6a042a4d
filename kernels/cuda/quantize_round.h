// The quantisers' rounding half: how each scheme turns a thread's 16 elements into codes and a scale. The
// arithmetic is that of base/nvfp4.h; here is what spans threads: a tile's scale, a group's correction.
#pragma once

#include "base/nvfp4.h"
#include "kernels/cuda/quantize_load.h"

namespace q2::cuda {

/// The operand's rounding draws: given, or of a stream.
struct BlockDraws {
    Address address;  // whose `given` is the host's
    const float *given_elements, *given_blocks;
    int64_t inner;

    __device__ DrawStream stream() const { return rounding_stream(*address.state, address); }

    __device__ __forceinline__ void elements(const BlockPlace& at, float (&u)[kBlock]) const {
#pragma unroll
        for (int i = 0; i < kBlock; i += 4) {
            const int64_t position = at.block * kBlock + i;
            const PhiloxWords words = given_elements ? PhiloxWords{} : stream().words(position, at.row);
#pragma unroll
            for (int j = 0; j < 4; ++j)
                u[i + j] = !given_elements ? uniform_of(words.word[j])
                           : at.inside     ? given_elements[at.row * inner + position + j]
                                           : 0.0f;
        }
    }
    __device__ __forceinline__ float block(const BlockPlace& at) const {
        if (!given_blocks) return stream().uniform(at.block, at.row);
        return at.inside ? given_blocks[at.row * (inner / kBlock) + at.block] : 0.0f;
    }
};

/// Which maximum a scheme's tensor scale comes from: of the elements, unless the scheme says otherwise.
struct ElementMaximum {
    using Statistic = ElementMaximum;
    static constexpr bool kTileScales = false;
    __device__ static uint32_t statistic(const float (&x)[kBlock]) { return bits_of(block_amax(x)); }
};

// ---- Round to nearest or stochastically

template <Rule rule>
struct NearestBlocks : ElementMaximum {
    __device__ static float scale_of(float amax) { return tensor_scale(amax, kTop, scale_limit(rule)); }
    __device__ static uint8_t encode(const BlockPlace&, const float (&x)[kBlock], float s_t,
                                     const BlockDraws&, int (&codes)[kBlock]) {
        return quantize_block<1>(&x, s_t, nearest_candidates(rule), rule, NearestCodes{}, &codes);
    }
};

template <Rule rule>
struct StochasticBlocks : ElementMaximum {
    __device__ static float scale_of(float amax) {
        return tensor_scale(amax, kTopStochastic, scale_limit(rule));
    }
    __device__ static uint8_t encode(const BlockPlace& at, const float (&x)[kBlock], float s_t,
                                     const BlockDraws& draws, int (&codes)[kBlock]) {
        float u[kBlock];
        draws.elements(at, u);
        return quantize_block<1>(&x, s_t, stochastic_candidates(rule), rule, StochasticCodes{&u}, &codes);
    }
};

/// quantize_block<16> with a thread a row: the rows' maxima and errors meet in shared memory, in row order.
template <Rule rule>
struct NearestTiles : ElementMaximum {
    static constexpr bool kTileScales = true;
    __device__ static float scale_of(float amax) { return tensor_scale(amax, kTop, scale_limit(rule)); }

    template <class Combine>
    __device__ static float over_rows(float of_row, Combine combine) {
        __shared__ float rows[kTileRows][kTileBlocks];
        const int row = threadIdx.x / kTileBlocks, block = threadIdx.x % kTileBlocks;
        __syncthreads();
        rows[row][block] = of_row;
        __syncthreads();
        float total = 0.0f;
        for (int i = 0; i < kBlock; ++i) total = combine(total, rows[row / kBlock * kBlock + i][block]);
        return total;
    }
    __device__ static float larger(float a, float b) { return bits_of(b) > bits_of(a) ? b : a; }
    __device__ static float add_error(float total, float e) {
        return rule == Rule::absmax ? (e > total ? e : total) : add(total, e);
    }

    __device__ static uint8_t encode(const BlockPlace&, const float (&x)[kBlock], float s_t,
                                     const BlockDraws&, int (&codes)[kBlock]) {
        const Candidates candidates = nearest_candidates(rule);
        const float amax = over_rows(block_amax(x), larger);
        uint8_t best_scale = 0;
        float best_error = 0.0f;
        for (int c = 0; c < candidates.count; ++c) {
            const uint8_t scale = candidate_scale(amax, s_t, candidates.list[c]);
            const float value = mul(e4m3_value(scale), s_t);
            int trial[kBlock];
            NearestCodes{}(0, x, scale_reciprocal(scale, s_t), trial);
            float error = 0.0f;
            if (candidates.count > 1) error = over_rows(row_error(x, trial, value, rule), add_error);
            if (c == 0 || error < best_error) {
                best_scale = scale;
                best_error = error;
                for (int i = 0; i < kBlock; ++i) codes[i] = trial[i];
            }
        }
        return best_scale;
    }
};

// ---- MS-EDEN

/// The correction of this thread's group of 16 or 128 elements.
template <int group>
__device__ __forceinline__ float group_correction(EdenSums sums) {
    static_assert(group == kBlock || group == kTileInner);
    // Exchanging with lane ^ 1, ^ 2, ^ 4 adds the eight blocks in eden_group_sums' pairs.
    for (int lanes = 1; lanes < group / kBlock; lanes *= 2) {
        sums.num = add(sums.num, __shfl_xor_sync(kAllLanes, sums.num, lanes));
        sums.den = add(sums.den, __shfl_xor_sync(kAllLanes, sums.den, lanes));
    }
    return eden_correction(sums);
}

template <int group>
struct EdenBlocks : ElementMaximum {
    __device__ static float scale_of(float amax) { return tensor_scale(amax, kTopEden, kScaleLimitEden); }
    __device__ static uint8_t encode(const BlockPlace& at, const float (&x)[kBlock], float s_t,
                                     const BlockDraws& draws, int (&codes)[kBlock]) {
        const uint8_t scale = eden_base_scale(block_amax(x), s_t);
        const EdenSums sums = eden_encode(x, scale_reciprocal(scale, s_t), codes);
        const float corrected = mul(e4m3_value(scale), group_correction<group>(sums));
        return e4m3_sr(corrected, draws.block(at));
    }
};

/// Range post_hoc: the maximum is that of the corrected pseudo scales c. Both passes recompute c, since the
/// emulation's dense operand must be written after s_t is known anyway.
struct EdenPostHoc {
    using Statistic = EdenPostHoc;
    static constexpr bool kTileScales = false;

    __device__ static float corrected(const float (&x)[kBlock], int (&codes)[kBlock]) {
        const float pseudo = eden_pseudo_scale(block_amax(x));
        const EdenSums sums = eden_encode(x, pseudo == 0.0f ? 0.0f : div(1.0f, pseudo), codes);
        return mul(pseudo, eden_correction(sums));
    }
    __device__ static uint32_t statistic(const float (&x)[kBlock]) {
        int codes[kBlock];
        return magnitude_bits(corrected(x, codes));
    }
    __device__ static float scale_of(float largest) { return post_hoc_tensor_scale(largest); }
    __device__ static uint8_t encode(const BlockPlace& at, const float (&x)[kBlock], float s_t,
                                     const BlockDraws& draws, int (&codes)[kBlock]) {
        const float c = corrected(x, codes);
        return e4m3_sr(div(c, s_t), draws.block(at));
    }
};

// ---- Write

/// Where the parts of the result go; each may be null.
struct QuantizeOutput {
    uint8_t *codes, *scales;
    Bf16* dense;
    float* tensor_scale;
    int64_t inner;

    template <bool tile_scales>
    __device__ __forceinline__ void write(const BlockPlace& at, const int (&c)[kBlock], uint8_t scale) const {
        const int64_t element = at.row * inner + at.block * kBlock, blocks = inner / kBlock;
        if (codes) {
            Vector<uint8_t, kBlock / 2> bytes;
#pragma unroll
            for (int i = 0; i < kBlock / 2; ++i) bytes.v[i] = uint8_t(c[2 * i] | c[2 * i + 1] << 4);
            *reinterpret_cast<Vector<uint8_t, kBlock / 2>*>(codes + element / 2) = bytes;
        }
        if (scales && !tile_scales) scales[at.row * blocks + at.block] = scale;
        if (scales && tile_scales && at.row % kBlock == 0)
            scales[at.row / kBlock * blocks + at.block] = scale;
        if (!dense) return;
        float value[kBlock];
#pragma unroll
        for (int i = 0; i < kBlock; ++i) value[i] = mul(e2m1_value(c[i]), e4m3_value(scale));
        store<kBlock>(dense + element, value);
    }
};

}  // namespace q2::cuda
