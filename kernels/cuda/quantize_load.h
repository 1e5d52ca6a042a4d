// The quantisers' loading half: a tile of the operand, decoded, transposed, padded and rotated, as one block
// of 16 elements in each thread's registers. Bit for bit what kernels/cpu/quantize.cpp loads.
//
// A thread block takes tiles of 32 rows x 128 inner elements; thread t holds row t/8, elements 16*(t%8) ..
// +15, so that a rotated run or a correction group of 128 lies in eight neighbouring lanes.
#pragma once

#include "base/hadamard.h"
#include "kernels/cuda/device/reduce.h"
#include "kernels/cuda/device/vectors.h"
#include "ops/ops.h"

namespace q2::cuda {

constexpr int kTileRows = 32, kTileInner = 128, kTileBlocks = kTileInner / kBlock;
constexpr int kTileThreads = kTileRows * kTileBlocks;
constexpr int kMaxRotation = kTileInner;

enum class Stored { f32, bf16, codes };

/// The source as it lies in memory; element (row, k) of the operand is at (k, row) if transposed.
struct QuantizeSource {
    Stored stored;
    bool transposed, wide, tile_scales;
    const void* data;       // (rows, cols), codes two a byte
    const uint8_t* scales;  // of codes: (rows, cols/16), or (rows/16, cols/16)
    const float* factor;    // of codes: their tensor scale; null leaves it to the product
    int64_t rows, cols;
};

/// Signs of both rounds, drawn or given.
struct QuantizeRotation {
    Rotation rotation;
    Address address;  // whose `given` is the host's
    const float* given[2];
};

struct QuantizeInput {
    QuantizeSource source;
    QuantizeRotation rotation;
    int64_t rows, inner;  // of the operand, padded
};

/// What a block of threads shares. The staging rows are 137 apart and their 16-element blocks 17, so that
/// neither the columns written nor the blocks read meet in one bank.
struct QuantizeShared {
    static constexpr int kRowPitch = 137, kBlockPitch = kBlock + 1;
    float staged[kTileRows * kRowPitch];
    float signs[2][kMaxRotation];

    __device__ float& at(int row, int k) { return staged[row * kRowPitch + k + k / kBlock]; }
};

// ---- Load

/// Sixteen codes of a stored row, from `col` on, as float32.
__device__ __forceinline__ void decode_block(const QuantizeSource& s, int64_t row, int64_t col,
                                             float (&x)[kBlock]) {
    const uint8_t* codes = static_cast<const uint8_t*>(s.data) + (row * s.cols + col) / 2;
    const Vector<uint8_t, kBlock / 2> bytes = *reinterpret_cast<const Vector<uint8_t, kBlock / 2>*>(codes);
    const int64_t scale_row = s.tile_scales ? row / kBlock : row;
    const float factor = s.factor ? *s.factor : 1.0f;
    const float scale = mul(e4m3_value(s.scales[scale_row * (s.cols / kBlock) + col / kBlock]), factor);
#pragma unroll
    for (int i = 0; i < kBlock / 2; ++i) {
        x[2 * i] = mul(e2m1_value(bytes.v[i] & 15), scale);
        x[2 * i + 1] = mul(e2m1_value(bytes.v[i] >> 4), scale);
    }
}

template <class T>
__device__ __forceinline__ void load_dense_block(const QuantizeSource& s, int64_t row, int64_t col,
                                                 float (&x)[kBlock]) {
    const T* from = static_cast<const T*>(s.data) + row * s.cols + col;
    if (s.wide && col + kBlock <= s.cols) return load<kBlock>(from, x);
#pragma unroll
    for (int i = 0; i < kBlock; ++i) x[i] = col + i < s.cols ? to_float(from[i]) : 0.0f;
}

/// A block of a source that is stored as the operand is; zeros beyond it.
__device__ __forceinline__ void load_block(const QuantizeSource& s, int64_t row, int64_t col,
                                           float (&x)[kBlock]) {
#pragma unroll
    for (int i = 0; i < kBlock; ++i) x[i] = 0.0f;
    if (row >= s.rows || col >= s.cols) return;
    switch (s.stored) {
        case Stored::f32:
            return load_dense_block<float>(s, row, col, x);
        case Stored::bf16:
            return load_dense_block<Bf16>(s, row, col, x);
        case Stored::codes:
            return decode_block(s, row, col, x);
    }
}

/// The tile at (row, k) of a dense source stored transposed: a warp reads 32 neighbours of a stored row.
template <class T>
__device__ __forceinline__ void stage_dense(const QuantizeSource& s, int64_t row, int64_t k,
                                            QuantizeShared& shared) {
    const T* data = static_cast<const T*>(s.data);
    const int lane = threadIdx.x % kTileRows;
    for (int i = threadIdx.x / kTileRows; i < kTileInner; i += kTileThreads / kTileRows) {
        const bool inside = k + i < s.rows && row + lane < s.cols;
        shared.at(lane, i) = inside ? to_float(data[(k + i) * s.cols + row + lane]) : 0.0f;
    }
}

/// The same of codes: a thread decodes 16 neighbours of a stored row.
__device__ __forceinline__ void stage_codes(const QuantizeSource& s, int64_t row, int64_t k,
                                            QuantizeShared& shared) {
    static_assert(kTileThreads == kTileInner * kTileRows / kBlock);
    const int i = threadIdx.x % kTileInner, first = threadIdx.x / kTileInner * kBlock;
    float x[kBlock] = {};
    if (k + i < s.rows && row + first < s.cols) decode_block(s, k + i, row + first, x);
#pragma unroll
    for (int j = 0; j < kBlock; ++j) shared.at(first + j, i) = x[j];
}

/// This thread's block of the tile at (row, k), through shared memory.
__device__ __forceinline__ void load_transposed_block(const QuantizeSource& s, int64_t row, int64_t k,
                                                      QuantizeShared& shared, float (&x)[kBlock]) {
    __syncthreads();  // the tile before has been read
    switch (s.stored) {
        case Stored::f32:
            stage_dense<float>(s, row, k, shared);
            break;
        case Stored::bf16:
            stage_dense<Bf16>(s, row, k, shared);
            break;
        case Stored::codes:
            stage_codes(s, row, k, shared);
            break;
    }
    __syncthreads();
    const int of_row = threadIdx.x / kTileBlocks, first = threadIdx.x % kTileBlocks * kBlock;
#pragma unroll
    for (int i = 0; i < kBlock; ++i) x[i] = shared.at(of_row, first + i);
}

// ---- Rotate

__device__ __forceinline__ void draw_signs(const QuantizeRotation& r, QuantizeShared& shared) {
    for (int round = 0; round < r.rotation.rounds; ++round)
        for (int i = threadIdx.x; i < r.rotation.size; i += kTileThreads) {
            const float* given = r.given[round];
            shared.signs[round][i] =
                given ? given[i]
                      : sign_of(signs_stream(*r.address.state, r.address, round, r.rotation.redrawn)
                                    .word(uint64_t(i), 0));
        }
    __syncthreads();
}

/// The butterflies of base/hadamard.h on runs of `size` elements: h < 16 inside a thread's block, then
/// between neighbouring lanes. The same sums in the same order, so the same bits.
__device__ __forceinline__ void rotate_block(float (&x)[kBlock], int size, const float* signs) {
    const int block = threadIdx.x % kTileBlocks;
#pragma unroll
    for (int i = 0; i < kBlock; ++i) x[i] = mul(x[i], signs[(block * kBlock + i) % size]);
#pragma unroll
    for (int h = 1; h < kBlock; h *= 2)
#pragma unroll
        for (int j = 0; j < kBlock; ++j)
            if ((j & h) == 0) {
                const float a = x[j], b = x[j + h];
                x[j] = add(a, b);
                x[j + h] = sub(a, b);
            }
    for (int lanes = 1; lanes * kBlock < size; lanes *= 2) {
        const bool high = block & lanes;
#pragma unroll
        for (int i = 0; i < kBlock; ++i) {
            const float other = __shfl_xor_sync(kAllLanes, x[i], lanes);
            x[i] = high ? sub(other, x[i]) : add(x[i], other);
        }
    }
#pragma unroll
    for (int i = 0; i < kBlock; ++i) x[i] = mul(x[i], hadamard_scale(size));
}

// ---- Both, over all tiles

/// Where a thread's block lies in the operand.
struct BlockPlace {
    int64_t row, block;
    bool inside;
};

/// visit(place, x) for each tile of the operand, by all threads, so that it may shuffle and synchronise.
template <class Visit>
__device__ __forceinline__ void for_each_block(const QuantizeInput& in, QuantizeShared& shared, Visit visit) {
    draw_signs(in.rotation, shared);
    const int64_t across = (in.inner + kTileInner - 1) / kTileInner;
    const int64_t tiles = (in.rows + kTileRows - 1) / kTileRows * across;
    const Rotation& rotation = in.rotation.rotation;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int64_t tile_row = tile / across * kTileRows, tile_k = tile % across * kTileInner;
        BlockPlace place{tile_row + threadIdx.x / kTileBlocks, tile_k / kBlock + threadIdx.x % kTileBlocks,
                         false};
        place.inside = place.row < in.rows && place.block * kBlock < in.inner;
        float x[kBlock];
        if (in.source.transposed)
            load_transposed_block(in.source, tile_row, tile_k, shared, x);
        else
            load_block(in.source, place.row, place.block * kBlock, x);
        if (rotation.size > 0)
            for (int round = 0; round < rotation.rounds; ++round)
                rotate_block(x, rotation.size, shared.signs[round]);
        visit(place, x);
    }
}

}  // namespace q2::cuda
