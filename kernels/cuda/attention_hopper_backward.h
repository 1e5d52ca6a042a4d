// What the kernels of Hopper's backward attention share: one owns 128 queries of a head and makes dQ, another
// owns 128 keys and makes dK and dV; both recompute the probabilities from lse, so that no sum depends on the
// order of blocks. The formulas are those of attention_backward.cu (FlashAttention-2, arXiv 2307.08691,
// section 3.1).
#pragma once

#include "kernels/cuda/attention_hopper.h"

namespace q2::cuda {

constexpr int kOwned = 2 * kRows;  // queries or keys of a block: 64 a warpgroup
constexpr int kTile = 64;          // keys or queries that pass by at a time
constexpr int kBackwardStages = 2;
constexpr float kLog2E = 1.4426950408889634f;

/// What both kernels read of a query besides its rows: lse in units of log 2, and delta. Rows padded to whole
/// tiles have lse = infinity, so that their probabilities are 0.
struct RowStatistics {
    float *lse_log2, *delta;  // (batch heads, pitch)
    int pitch;

    __host__ __device__ static int pitch_of(int64_t sequence) {
        return int((sequence + kOwned - 1) / kOwned) * kOwned;
    }
};

struct BackwardTensors {
    Bf16* dqkv;
    RowStatistics rows;
    AttentionShape shape;
    float scale;  // 1 / sqrt(D)

    /// Where 64 rows of a head's gradient go; slot: heads, then key heads, then value heads.
    __device__ HeadSlice gradient(int batch, int slot, int first) const {
        const int64_t width = shape.qkv_width();
        return {dqkv + (batch * shape.sequence + first) * width + slot * shape.head_size, width,
                int(shape.sequence) - first};
    }
};

/// A ring of tiles that one warpgroup fills and two empty.
struct Ring {
    Barrier full[kBackwardStages], empty[kBackwardStages];

    __device__ __forceinline__ void init() {
        for (int stage = 0; stage < kBackwardStages; ++stage)
            full[stage].init(1), empty[stage].init(kConsumerWarps);
    }
    __device__ void wait_empty(int i) { empty[i % kBackwardStages].wait(i / kBackwardStages % 2 ^ 1); }
    __device__ void wait_full(int i) { full[i % kBackwardStages].wait(i / kBackwardStages % 2); }
    __device__ void release(int i) {
        if (threadIdx.x % kWarp == 0) empty[i % kBackwardStages].arrive();
    }
};

/// The owned tile comes as two boxes of 64 rows: one map serves both sizes of tile.
template <int D>
__device__ __forceinline__ void copy_owned(Bf16* to, const CUtensorMap* map, Barrier& barrier, int col,
                                           int row, int batch) {
    for (int half = 0; half < 2; ++half)
        for (int panel = 0; panel < D / kPanel; ++panel)
            copy_box(to + (panel * kOwned + half * kRows) * kPanel, map, barrier, col + panel * kPanel,
                     row + half * kRows, batch);
}

/// dQ of every query: launches on `stream`.
void hopper_attention_dquery(cudaStream_t stream, const BackwardTensors&, Tensor dout, Tensor qkv);
/// dK and dV of every key, summed over the heads that share it.
void hopper_attention_dkey(cudaStream_t stream, const BackwardTensors&, Tensor dout, Tensor qkv);

}  // namespace q2::cuda
