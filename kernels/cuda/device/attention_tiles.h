// Tiles of attention in shared memory, float32: R rows of a head padded to D columns, and the three products
// that forward and backward are made of. A block is 16 x 16 threads; thread (y, x) owns rows y*N .. y*N + N-1
// and columns x, x+16, ... of a score tile (N = R/16), or columns 4x + 64c .. + 3 of a tile of heads.
#pragma once

#include "kernels/cuda/device/vectors.h"

namespace q2::cuda {

constexpr int kSide = 16;  // threads along each side of a block
constexpr int kAttentionThreads = kSide * kSide;

template <int D, int R>
struct Tiles {
    static constexpr int kPitch = D + 4;  // rows start 4 banks apart: 16-byte reads of 8 rows do not clash
    static constexpr int kScorePitch = R + 4;
    static constexpr int kHead = R * kPitch;  // floats of a tile of heads
    static constexpr int kScores = R * kScorePitch;
    static constexpr int N = R / kSide;        // rows and columns of scores a thread owns
    static constexpr int C = D / (4 * kSide);  // groups of four head columns a thread owns
    static_assert(R % kSide == 0 && D % (4 * kSide) == 0);
};

/// Rows of one head: row i at data + i * stride.
template <class T>
struct HeadRows {
    T* data;
    int64_t stride;
    int size;  // of a head, a multiple of 8

    __device__ T* row(int64_t i) const { return data + i * stride; }
};

/// Rows first .. first+R-1 into a tile; rows from `end` on and columns past the head are 0.
template <int D, int R, class T>
__device__ void load_tile(float* tile, HeadRows<const T> rows, int first, int end) {
    constexpr int kGroups = D / 8;
    for (int i = threadIdx.x; i < R * kGroups; i += kAttentionThreads) {
        const int row = i / kGroups, col = i % kGroups * 8;
        float x[8] = {};
        if (first + row < end && col < rows.size) load<8>(rows.row(first + row) + col, x);
        store<8>(tile + row * Tiles<D, R>::kPitch + col, x);
    }
}

/// s[i][j] = <a's row y*N+i, b's row x+16j>.
template <int D, int R>
__device__ __forceinline__ void multiply_rows(float (&s)[R / kSide][R / kSide], const float* a,
                                              const float* b) {
    using T = Tiles<D, R>;
    const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
#pragma unroll
    for (int i = 0; i < T::N; ++i)
#pragma unroll
        for (int j = 0; j < T::N; ++j) s[i][j] = 0.0f;
#pragma unroll 4
    for (int d = 0; d < D; d += 4) {
        float u[T::N][4], v[T::N][4];
#pragma unroll
        for (int i = 0; i < T::N; ++i) {
            load<4>(a + (y * T::N + i) * T::kPitch + d, u[i]);
            load<4>(b + (x + kSide * i) * T::kPitch + d, v[i]);
        }
#pragma unroll
        for (int i = 0; i < T::N; ++i)
#pragma unroll
            for (int j = 0; j < T::N; ++j)
#pragma unroll
                for (int k = 0; k < 4; ++k) s[i][j] += u[i][k] * v[j][k];
    }
}

/// What a thread accumulates of a tile of heads: its rows, its columns in groups of four.
template <int D, int R>
using HeadSums = float[R / kSide][D / (4 * kSide)][4];

template <int D, int R>
__device__ __forceinline__ void clear_sums(HeadSums<D, R>& sums) {
    using T = Tiles<D, R>;
#pragma unroll
    for (int i = 0; i < T::N; ++i)
#pragma unroll
        for (int c = 0; c < T::C; ++c)
#pragma unroll
            for (int k = 0; k < 4; ++k) sums[i][c][k] = 0.0f;
}

/// One row of a score tile's product with a tile of heads: sums[i] += weight[i] * heads' row.
template <int D, int R>
__device__ __forceinline__ void add_weighted_row(HeadSums<D, R>& sums, const float (&weight)[R / kSide],
                                                 const float* heads_row) {
    using T = Tiles<D, R>;
    const int x = threadIdx.x % kSide;
#pragma unroll
    for (int c = 0; c < T::C; ++c) {
        float h[4];
        load<4>(heads_row + 4 * x + 4 * kSide * c, h);
#pragma unroll
        for (int i = 0; i < T::N; ++i)
#pragma unroll
            for (int k = 0; k < 4; ++k) sums[i][c][k] += weight[i] * h[k];
    }
}

/// sums += S H: the thread's rows of the scores, over their columns.
template <int D, int R>
__device__ __forceinline__ void add_product(HeadSums<D, R>& sums, const float* scores, const float* heads) {
    using T = Tiles<D, R>;
    const int y = threadIdx.x / kSide;
#pragma unroll 2
    for (int col = 0; col < R; col += 4) {
        float s[T::N][4];
#pragma unroll
        for (int i = 0; i < T::N; ++i) load<4>(scores + (y * T::N + i) * T::kScorePitch + col, s[i]);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            float weight[T::N];
#pragma unroll
            for (int i = 0; i < T::N; ++i) weight[i] = s[i][k];
            add_weighted_row<D, R>(sums, weight, heads + (col + k) * T::kPitch);
        }
    }
}

/// sums += S^T H: the thread's columns of the scores (y*N + i here), over their rows.
template <int D, int R>
__device__ __forceinline__ void add_transposed_product(HeadSums<D, R>& sums, const float* scores,
                                                       const float* heads) {
    using T = Tiles<D, R>;
    const int y = threadIdx.x / kSide;
#pragma unroll 4
    for (int row = 0; row < R; ++row) {
        float weight[T::N];
        load<T::N>(scores + row * T::kScorePitch + y * T::N, weight);
        add_weighted_row<D, R>(sums, weight, heads + row * T::kPitch);
    }
}

/// The thread's scores into a score tile.
template <int D, int R>
__device__ __forceinline__ void store_scores(float* scores, const float (&s)[R / kSide][R / kSide]) {
    using T = Tiles<D, R>;
    const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
#pragma unroll
    for (int i = 0; i < T::N; ++i)
#pragma unroll
        for (int j = 0; j < T::N; ++j) scores[(y * T::N + i) * T::kScorePitch + x + kSide * j] = s[i][j];
}

/// The thread's sums, times `factor` a row, into rows first .. of a head; returns the largest magnitude
/// stored.
template <int D, int R, class T>
__device__ uint32_t store_sums(HeadRows<T> rows, int first, int end, const HeadSums<D, R>& sums,
                               const float (&factor)[R / kSide]) {
    const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
    uint32_t largest = 0;
    for (int i = 0; i < Tiles<D, R>::N; ++i) {
        const int row = first + y * Tiles<D, R>::N + i;
        for (int c = 0; c < Tiles<D, R>::C; ++c) {
            const int col = 4 * x + 4 * kSide * c;
            if (row >= end || col >= rows.size) continue;
            float out[4];
            for (int k = 0; k < 4; ++k) {
                out[k] = rounded_to<T>(sums[i][c][k] * factor[i]);
                const uint32_t magnitude = magnitude_bits(out[k]);
                largest = magnitude > largest ? magnitude : largest;
            }
            store<4>(rows.row(row) + col, out);
        }
    }
    return largest;
}

}  // namespace q2::cuda
