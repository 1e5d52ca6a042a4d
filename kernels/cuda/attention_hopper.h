// Attention on Hopper's tensor cores, for bfloat16 heads of 64 or 128: what both directions share.
#pragma once

#include "kernels/cuda/device/hopper.h"
#include "kernels/cuda/device/reduce.h"
#include "kernels/cuda/device/shared.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/tensor_map.h"

namespace q2::cuda {

/// Whether the tensor-core kernels take this case: the device, the type and the size of a head.
inline bool hopper_attention_fits(Context& ctx, Tensor qkv, const AttentionShape& s) {
    return state_of(ctx).hopper && qkv.dtype == Dtype::bf16 && (s.head_size == 64 || s.head_size == 128);
}

/// As the slots of ops/ops.h, where hopper_attention_fits.
void hopper_attention_forward(Context&, Tensor out, Tensor lse, Tensor qkv, const AttentionShape&, Amax*);
void hopper_attention_backward(Context&, Tensor dqkv, Tensor dout, Tensor out, Tensor lse, Tensor qkv,
                               const AttentionShape&);
size_t hopper_attention_scratch(const AttentionShape&);

constexpr int kWarpgroup = 128;                 // threads
constexpr int kHopperThreads = 3 * kWarpgroup;  // one warpgroup copies, two multiply
constexpr int kConsumerWarps = 2 * kWarpgroup / kWarp;
constexpr int kRows = 64;  // rows of a product: a warpgroup's
constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;

/// Elements of a tile of `rows` rows of a head of D.
template <int D>
constexpr int tile_size(int rows) {
    return rows * D;
}

/// A tile of R rows, in panels, from columns col.. of the map, rows row.. of sequence `batch`.
template <int D, int R>
__device__ __forceinline__ void copy_tile(Bf16* to, const CUtensorMap* map, Barrier& barrier, int col,
                                          int row, int batch) {
#pragma unroll
    for (int panel = 0; panel < D / kPanel; ++panel)
        copy_box(to + panel * R * kPanel, map, barrier, col + panel * kPanel, row, batch);
}

/// d (64, N) = A B^T over D: rows first.. of an (R, D) tile by all N rows of an (N, D) tile.
template <int D, int R, int N>
__device__ __forceinline__ void multiply_rows(float (&d)[N / 2], const Bf16* a, int first, const Bf16* b) {
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        const Bf16* a_panel = a + k / kPanel * R * kPanel + first * kPanel + k % kPanel;
        const Bf16* b_panel = b + k / kPanel * N * kPanel + k % kPanel;
        multiply16(d, describe_rows(a_panel), describe_rows(b_panel), k > 0);
    }
}

/// d (64, D) += A B: A (64, K) in registers, B a (K, D) tile.
template <int D, int K>
__device__ __forceinline__ void add_product(float (&d)[D / 2], const uint32_t (&a)[K / 4], const Bf16* b) {
#pragma unroll
    for (int k = 0; k < K; k += 16)
        multiply16_registers(d, a + k / 4, describe_columns(b + k * kPanel, K * kPanel * sizeof(Bf16)));
}

// A thread's part of a product (64, N): columns 8j + 2t and 8j + 2t + 1 of rows g and g + 8 of its warp's 16,
// in x[4j .. 4j + 3], with g = lane / 4 and t = lane % 4.

/// The thread's first row of its warpgroup's 64; the other is 8 further.
__device__ __forceinline__ int own_row() {
    return threadIdx.x % kWarpgroup / kWarp * 16 + threadIdx.x % kWarp / 4;
}
/// The thread's first column of each eight.
__device__ __forceinline__ int own_column() { return threadIdx.x % 4 * 2; }

/// A product's registers, rounded, are the first operand of the next: the layouts agree.
template <int n>
__device__ __forceinline__ void pack(uint32_t (&to)[n / 2], const float (&x)[n]) {
#pragma unroll
    for (int i = 0; i < n / 2; ++i) to[i] = pack_bf16(x[2 * i], x[2 * i + 1]);
}

__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/// Where 64 rows of a head go: row i at data + i * stride, of which `rows` are inside the sequence.
struct HeadSlice {
    Bf16* data;
    int64_t stride;
    int rows;
};

/// x (64, D) * factor a row, rounded, by way of `staging` (64 rows of an (R, D) tile, from its row `first`),
/// in 16-byte pieces. Returns the largest magnitude this thread stored.
template <int D, int R>
__device__ __forceinline__ uint32_t store_rows(const HeadSlice& to, const float (&x)[D / 2],
                                               const float (&factor)[2], Bf16* staging, int first,
                                               int barrier_id) {
    constexpr int kPiece = 8;  // elements of 16 bytes
    const auto place = [&](int row, int piece) {
        return staging + (piece / 8 * R + first + row) * kPanel + (piece % 8 ^ row % 8) * kPiece;
    };
    const int row = own_row();
    uint32_t largest = 0;
#pragma unroll
    for (int j = 0; j < D / 8; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const uint32_t both =
                pack_bf16(x[4 * j + 2 * half] * factor[half], x[4 * j + 2 * half + 1] * factor[half]);
            *reinterpret_cast<uint32_t*>(place(row + 8 * half, j) + own_column()) = both;
            if (row + 8 * half < to.rows)
                largest = max(largest, max(both << 16 & 0x7fff0000u, both & 0x7fff0000u));
        }
    sync_warpgroup(barrier_id);
    constexpr int kPieces = D / kPiece;
#pragma unroll
    for (int i = threadIdx.x % kWarpgroup; i < kRows * kPieces; i += kWarpgroup) {
        const int from = i / kPieces, piece = i % kPieces;
        if (from < to.rows)
            *reinterpret_cast<int4*>(to.data + from * to.stride + piece * kPiece) =
                *reinterpret_cast<const int4*>(place(from, piece));
    }
    return largest;
}

/// The tiles of a kernel in shared memory, aligned as swizzling wants it.
__device__ __forceinline__ Bf16* aligned_tiles() {
    unsigned char* base = dynamic_shared<unsigned char>();
    const uint32_t past = shared_address(base) % 1024;
    return reinterpret_cast<Bf16*>(base + (past ? 1024 - past : 0));
}
constexpr size_t kAlignment = 1024;

}  // namespace q2::cuda
