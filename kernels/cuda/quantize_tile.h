// The quantisers' tile: 128 x 128 elements of a source as it is stored, in shared memory as float32, that can
// be read along either direction. A thread block of 256 takes one; a thread then holds half of a run of 128
// in registers, its other half being in lane ^ 16, so that a rotation has one exchange between lanes.
//
// Shared memory: chunks of 16 bytes, moved within their group of eight by the row's number (`swizzle`), so
// that eight lanes that access one chunk each meet eight groups of banks, along rows and along columns.
#pragma once

#include "base/hadamard.h"
#include "kernels/cuda/device/reduce.h"
#include "kernels/cuda/device/vectors.h"
#include "kernels/cuda/quantize_load.h"

namespace q2::cuda {

constexpr int kSide = 128, kHalf = kSide / 2, kHalfBlocks = kHalf / kBlock;
constexpr int kSideThreads = 2 * kSide;
constexpr int kPartnerLane = 16;  // exclusive or: the lane with the other half of the run

/// This thread's half run: row of the tile as the operand sees it, and which half.
struct HalfPlace {
    int row = int(threadIdx.x) / kWarp * 16 + int(threadIdx.x) % 16;
    int half = int(threadIdx.x) % kWarp / 16;
};

struct TileShared {
    alignas(16) float values[kSide * kSide];
    alignas(16) Bf16 staged[kSide * kSide];
    alignas(16) float signs[2][kSide];  // of both rounds, repeated to the length of a run
    float reciprocals[kE4m3Max + 1];    // of the scales, by code

    static __device__ int swizzle(int row) { return (row & 7) ^ (row >> 6 << 2); }
    __device__ float* chunk(int row, int chunk) {
        return values + row * kSide + ((chunk ^ swizzle(row)) << 2);
    }
    __device__ Bf16* staged_chunk(int row, int chunk) {
        return staged + row * kSide + ((chunk ^ (row & 7)) << 3);
    }
};

// ---- Fill: 16 bytes of the source an access. A warp takes 16 rows, eight lanes side by side one each.

struct RawPiece {
    uint4 bytes;
    uint32_t scales;
};

/// What 16 bytes of a stored type hold, and how they become float32.
template <Stored stored>
struct Piece;

template <>
struct Piece<Stored::f32> {
    static constexpr int kElements = 4;
    static __device__ RawPiece load(const QuantizeSource& s, int64_t row, int64_t col) {
        const float* from = static_cast<const float*>(s.data) + row * s.cols + col;
        if (s.wide) return {*reinterpret_cast<const uint4*>(from), 0};
        uint32_t word[4] = {};
        for (int i = 0; i < 4; ++i)
            if (col + i < s.cols) word[i] = bits_of(from[i]);
        return {{word[0], word[1], word[2], word[3]}, 0};
    }
    static __device__ void unpack(const RawPiece& raw, float, float, int, float (&x)[4]) {
        x[0] = float_of(raw.bytes.x), x[1] = float_of(raw.bytes.y);
        x[2] = float_of(raw.bytes.z), x[3] = float_of(raw.bytes.w);
    }
};

template <>
struct Piece<Stored::bf16> {
    static constexpr int kElements = 8;
    static __device__ RawPiece load(const QuantizeSource& s, int64_t row, int64_t col) {
        const Bf16* from = static_cast<const Bf16*>(s.data) + row * s.cols + col;
        if (s.wide) return {*reinterpret_cast<const uint4*>(from), 0};
        uint32_t word[4] = {};
        for (int i = 0; i < 8; ++i)
            if (col + i < s.cols) word[i / 2] |= uint32_t(from[i].bits) << (i % 2 * 16);
        return {{word[0], word[1], word[2], word[3]}, 0};
    }
    static __device__ void unpack(const RawPiece& raw, float, float, int quarter, float (&x)[4]) {
        const uint32_t low = quarter ? raw.bytes.z : raw.bytes.x, high = quarter ? raw.bytes.w : raw.bytes.y;
        x[0] = float_of(low << 16), x[1] = float_of(low & 0xffff0000u);
        x[2] = float_of(high << 16), x[3] = float_of(high & 0xffff0000u);
    }
};

/// Codes: two blocks; a code's value comes from the lane of its number.
template <>
struct Piece<Stored::codes> {
    static constexpr int kElements = 32;
    static __device__ RawPiece load(const QuantizeSource& s, int64_t row, int64_t col) {
        const uint8_t* codes = static_cast<const uint8_t*>(s.data) + (row * s.cols + col) / 2;
        const uint8_t* scales =
            s.scales + (s.tile_scales ? row / kBlock : row) * (s.cols / kBlock) + col / kBlock;
        const bool both = col + kBlock < s.cols;  // columns come in blocks, and rows in multiples of 8 bytes
        const uint2 low = *reinterpret_cast<const uint2*>(codes);
        const uint2 high = both ? *reinterpret_cast<const uint2*>(codes + 8) : uint2{};
        return {{low.x, low.y, high.x, high.y}, scales[0] | uint32_t(both ? scales[1] : 0) << 8};
    }
    static __device__ void unpack(const RawPiece& raw, float value_of_lane, float factor, int quarter,
                                  float (&x)[4]) {
        const uint32_t word = quarter < 2   ? raw.bytes.x
                              : quarter < 4 ? raw.bytes.y
                              : quarter < 6 ? raw.bytes.z
                                            : raw.bytes.w;
        const float scale = mul(e4m3_value(uint8_t(raw.scales >> (quarter / 4 * 8))), factor);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int code = int(word >> (quarter % 2 * 16 + i * 4)) & 15;
            x[i] = mul(__shfl_sync(kAllLanes, value_of_lane, code), scale);
        }
    }
};

/// All loads are issued before the first is used.
template <Stored stored>
__device__ __forceinline__ void fill_tile(const QuantizeSource& s, int64_t row0, int64_t col0,
                                          TileShared& shared) {
    constexpr int kElements = Piece<stored>::kElements, kAcross = kSide / kElements;
    constexpr int kPieces = kSide * kAcross / kSideThreads;
    const int lane = threadIdx.x % kWarp, first = threadIdx.x / kWarp * 16 + lane % 8;
    const auto row_of = [&](int piece) { return first + piece % 2 * 8; };
    const auto col_of = [&](int piece) { return (piece / 2 * 4 + lane / 8) * kElements; };
    RawPiece raw[kPieces];
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
        const int64_t row = row0 + row_of(p), col = col0 + col_of(p);
        raw[p] = row < s.rows && col < s.cols ? Piece<stored>::load(s, row, col) : RawPiece{};
    }
    const float value_of_lane = e2m1_value(lane & 15), factor = s.factor ? *s.factor : 1.0f;
#pragma unroll
    for (int p = 0; p < kPieces; ++p)
#pragma unroll
        for (int quarter = 0; quarter < kElements / 4; ++quarter) {
            float x[4];
            Piece<stored>::unpack(raw[p], value_of_lane, factor, quarter, x);
            store<4>(shared.chunk(row_of(p), col_of(p) / 4 + quarter), x);
        }
}

// ---- Read

__device__ __forceinline__ void read_along_row(TileShared& shared, const HalfPlace& at, float (&x)[kHalf]) {
#pragma unroll
    for (int i = 0; i < kHalf / 4; ++i) {
        const Vector<float, 4> four =
            *reinterpret_cast<const Vector<float, 4>*>(shared.chunk(at.row, at.half * (kHalf / 4) + i));
#pragma unroll
        for (int j = 0; j < 4; ++j) x[4 * i + j] = four.v[j];
    }
}

__device__ __forceinline__ void read_along_column(TileShared& shared, const HalfPlace& at,
                                                  float (&x)[kHalf]) {
#pragma unroll
    for (int j = 0; j < kHalf; ++j) x[j] = shared.chunk(at.half * kHalf + j, at.row / 4)[at.row % 4];
}

// ---- Rotate

/// shared.signs of this rotation, repeated to 128; the caller synchronises.
__device__ __forceinline__ void draw_tile_signs(const QuantizeRotation& r, TileShared& shared) {
    if (r.rotation.size == 0) return;
    const int round = threadIdx.x / kSide, i = threadIdx.x % kSide % r.rotation.size;
    if (round >= r.rotation.rounds) return;
    const float* given = r.given[round];
    shared.signs[round][threadIdx.x % kSide] =
        given
            ? given[i]
            : sign_of(
                  signs_stream(*r.address.state, r.address, round, r.rotation.redrawn).word(uint64_t(i), 0));
}

template <int h>
__device__ __forceinline__ void butterflies(float (&x)[kHalf]) {
#pragma unroll
    for (int j = 0; j < kHalf; ++j)
        if ((j & h) == 0) {
            const float a = x[j], b = x[j + h];
            x[j] = add(a, b);
            x[j + h] = sub(a, b);
        }
}

/// base/hadamard.h on the runs of `size` that the two halves hold, without the last factor: the same sums in
/// the same order. A sign times a value is exact, so that it may ride in a fused multiply-add.
__device__ __forceinline__ void rotate_unscaled(float (&x)[kHalf], int size, const float* signs, int half) {
#pragma unroll
    for (int i = 0; i < kHalf; i += 4) {
        const Vector<float, 4> s = *reinterpret_cast<const Vector<float, 4>*>(signs + half * kHalf + i);
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            const float a = x[i + j], b = mul(x[i + j + 1], s.v[j + 1]);
            x[i + j] = fused(a, s.v[j], b);
            x[i + j + 1] = fused(a, s.v[j], -b);
        }
    }
    butterflies<2>(x);
    butterflies<4>(x);
    butterflies<8>(x);
    if (size > 16) butterflies<16>(x);
    if (size > 32) butterflies<32>(x);
    if (size > 64) {
        const float side = half ? -1.0f : 1.0f;
#pragma unroll
        for (int j = 0; j < kHalf; ++j)
            x[j] = fused(x[j], side, __shfl_xor_sync(kAllLanes, x[j], kPartnerLane));
    }
}

__device__ __forceinline__ void scale_all(float (&x)[kHalf], float factor) {
#pragma unroll
    for (int j = 0; j < kHalf; ++j) x[j] = mul(x[j], factor);
}

/// All rounds but for the last round's factor, which is returned.
__device__ __forceinline__ float rotate_half(float (&x)[kHalf], const Rotation& rotation,
                                             const TileShared& shared, int half) {
    if (rotation.size == 0) return 1.0f;
    const float factor = hadamard_scale(rotation.size);
#pragma unroll 1
    for (int round = 0; round < rotation.rounds; ++round) {
        if (round > 0) scale_all(x, factor);
        rotate_unscaled(x, rotation.size, shared.signs[round], half);
    }
    return factor;
}

// ---- Write

/// Values that bfloat16 holds, into this thread's part of the staging area.
__device__ __forceinline__ void stage_block(TileShared& shared, const HalfPlace& at, int block,
                                            const float* value) {
#pragma unroll
    for (int chunk = 0; chunk < 2; ++chunk) {
        Vector<uint32_t, 4> words;
#pragma unroll
        for (int i = 0; i < 4; ++i)
            words.v[i] =
                __byte_perm(bits_of(value[chunk * 8 + 2 * i]), bits_of(value[chunk * 8 + 2 * i + 1]), 0x7632);
        *reinterpret_cast<Vector<uint32_t, 4>*>(
            shared.staged_chunk(at.row, (at.half * kHalfBlocks + block) * 2 + chunk)) = words;
    }
}

/// The staged tile to (row0, k0) of `dense`, (rows, inner); a warp writes two rows of 256 bytes at a time.
__device__ __forceinline__ void write_staged(TileShared& shared, Bf16* dense, int64_t rows, int64_t inner,
                                             int64_t row0, int64_t k0) {
    constexpr int kAcross = kSide / 8;
    const int chunk = threadIdx.x % kAcross, first = threadIdx.x / kAcross;
    if (k0 + chunk * 8 >= inner) return;
#pragma unroll
    for (int i = 0; i < kSide; i += kSideThreads / kAcross) {
        const int row = first + i;
        if (row0 + row < rows)
            *reinterpret_cast<uint4*>(dense + (row0 + row) * inner + k0 + chunk * 8) =
                *reinterpret_cast<const uint4*>(shared.staged_chunk(row, chunk));
    }
}

}  // namespace q2::cuda
