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

/// A tensor's scale and what follows from it alone: `inv` of the candidates 6 and 4, and the reciprocals of
/// all block scales, by code.
struct RoundScale {
    float s_t, inverse_of_six, inverse_of_four;
    const float* reciprocals;

    __device__ RoundScale(float scale, const float* table)
        : s_t(scale),
          inverse_of_six(div(1.0f, mul(6.0f, scale))),
          inverse_of_four(div(1.0f, mul(4.0f, scale))),
          reciprocals(table) {}
};

__device__ __forceinline__ uint32_t block_maximum(const float (&x)[kBlock]) {
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < kBlock; ++i) largest = max_or_nan(largest, fabsf(x[i]));
    return bits_of(largest);
}

/// What the schemes share: the tensor scale comes from the largest element.
struct ElementMaximum {
    static constexpr bool kTileScales = false, kValues = false;
};

// ---- Round to nearest or stochastically

/// Below this code a scale is subnormal, and x / scale may be beyond what e2m1_round takes; from it on, x /
/// scale is at most the candidate's 6.08 times 17/16, the most that a scale loses in rounding.
constexpr int kFirstNormalScale = 8;

/// quantize_block<1> with the trial codes as values in registers, and no array that is indexed at run time.
template <Rule rule>
struct NearestBlocks : ElementMaximum {
    static constexpr bool kValues = true;

    __device__ static float scale_of(float amax) { return tensor_scale(amax, kTop, scale_limit(rule)); }

    /// Rounded under a scale; a zero has either sign.
    __device__ static void trial(const float (&x)[kBlock], float r, bool may_clip, float (&q)[kBlock]) {
#pragma unroll
        for (int i = 0; i < kBlock; ++i) q[i] = e2m1_round_unsigned_zero(mul(x[i], r));
        if (!may_clip) return;
#pragma unroll
        for (int i = 0; i < kBlock; ++i) q[i] = fminf(fmaxf(q[i], -kTop), kTop);
    }
    __device__ static float error(const float (&x)[kBlock], const float (&q)[kBlock], float value) {
        float total = 0.0f;
#pragma unroll
        for (int i = 0; i < kBlock; ++i) {
            const float d = sub(x[i], mul(q[i], value));
            if (rule == Rule::absmax)
                total = fabsf(d) > total ? fabsf(d) : total;
            else
                total = add(total, rule == Rule::mae ? fabsf(d) : mul(d, d));
        }
        return total;
    }
    /// A step down takes up to an eighth off the scale, so that even a normal one of 6 can clip.
    __device__ static bool clips(Candidate c, int scale) {
        return scale < kFirstNormalScale || (c.m == 6 && c.step < 0);
    }

    /// x becomes signed E2M1 values; returns the scale.
    __device__ static uint8_t encode_values(float (&x)[kBlock], const RoundScale& s) {
        constexpr Candidates candidates = nearest_candidates(rule);
        const float amax = float_of(block_maximum(x));
        const int of_six = e4m3_rn(mul(amax, s.inverse_of_six));
        const int of_four = candidates.count > 1 ? e4m3_rn(mul(amax, s.inverse_of_four)) : 0;
        float q[kBlock], best_error = 0.0f;
        int best = of_six;
#pragma unroll
        for (int c = 0; c < candidates.count; ++c) {
            if (candidates.count == 1) break;
            const Candidate candidate = candidates.list[c];
            const int scale = min(max((candidate.m == 6 ? of_six : of_four) + candidate.step, 0), kE4m3Max);
            trial(x, s.reciprocals[scale], clips(candidate, scale), q);
            const float e = error(x, q, mul(e4m3_value(uint8_t(scale)), s.s_t));
            if (c > 0 && !(e < best_error)) continue;
            best = scale;
            best_error = e;
        }
        trial(x, s.reciprocals[best], rule == Rule::search || best < kFirstNormalScale, q);
#pragma unroll
        for (int i = 0; i < kBlock; ++i) x[i] = with_sign_of(q[i], x[i]);
        return uint8_t(best);
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

// ---- Write

/// Where the parts of the result go; each may be null.
struct QuantizeOutput {
    uint8_t *codes, *scales;
    Bf16* dense;
    float* tensor_scale;
    int64_t inner;

    /// Of signed E2M1 values.
    __device__ __forceinline__ void write_values(const BlockPlace& at, float (&q)[kBlock],
                                                 uint8_t scale) const {
        const int64_t block = at.row * (inner / kBlock) + at.block;
        if (codes) {
            int c[kBlock];
#pragma unroll
            for (int i = 0; i < kBlock; ++i) c[i] = e2m1_code(q[i]);
            const PackedCodes packed = pack_codes(c);
            *reinterpret_cast<uint2*>(codes + block * (kBlock / 2)) = {packed.half[0], packed.half[1]};
        }
        if (scales) scales[block] = scale;
        if (!dense) return;
        const float scale_value = e4m3_value(scale);
        Vector<uint32_t, kBlock / 2> words;  // bfloat16 holds the products: their upper halves
#pragma unroll
        for (int i = 0; i < kBlock / 2; ++i)
            words.v[i] = __byte_perm(bits_of(mul(q[2 * i], scale_value)),
                                     bits_of(mul(q[2 * i + 1], scale_value)), 0x7632);
        *reinterpret_cast<Vector<uint32_t, kBlock / 2>*>(dense + block * kBlock) = words;
    }

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
