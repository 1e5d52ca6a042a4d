// Hopper's backward attention, dQ: a block owns 128 queries of a head; the keys and values that they see pass
// by.
#include "kernels/cuda/attention_hopper_backward.h"

namespace q2::cuda {
namespace {

template <int D>
struct QueryShared {
    Bf16 queries[tile_size<D>(kOwned)], douts[tile_size<D>(kOwned)];
    Bf16 keys[kBackwardStages][tile_size<D>(kTile)], values[kBackwardStages][tile_size<D>(kTile)];
    Barrier owned_full;
    Ring ring;
};

/// Where a block of the first kernel stands: its queries and the tiles of keys that they see.
struct QueryPlace {
    int batch, head, kv_head, first, tiles;

    __device__ explicit QueryPlace(const AttentionShape& s)
        : batch(blockIdx.x / int(s.heads)),
          head(blockIdx.x % int(s.heads)),
          kv_head(head / int(s.heads / s.kv_heads)),
          first(int(gridDim.y - 1 - blockIdx.y) * kOwned),  // the longest rows start first
          tiles((min(first + kOwned, int(s.sequence)) + kTile - 1) / kTile) {}
};

template <int D>
__device__ void copy_keys(QueryShared<D>& shared, const CUtensorMap* qkv, const CUtensorMap* dout,
                          const AttentionShape& s, const QueryPlace& at) {
    constexpr uint32_t kOwnedBytes = tile_size<D>(kOwned) * sizeof(Bf16),
                       kTileBytes = tile_size<D>(kTile) * sizeof(Bf16);
    const int key_column = int(s.heads + at.kv_head) * D, value_column = key_column + int(s.kv_heads) * D;
    shared.owned_full.arrive_and_expect(2 * kOwnedBytes);
    copy_owned<D>(shared.queries, qkv, shared.owned_full, at.head * D, at.first, at.batch);
    copy_owned<D>(shared.douts, dout, shared.owned_full, at.head * D, at.first, at.batch);
    for (int i = 0; i < at.tiles; ++i) {
        const int stage = i % kBackwardStages;
        shared.ring.wait_empty(i);
        shared.ring.full[stage].arrive_and_expect(2 * kTileBytes);
        copy_tile<D, kTile>(shared.keys[stage], qkv, shared.ring.full[stage], key_column, i * kTile,
                            at.batch);
        copy_tile<D, kTile>(shared.values[stage], qkv, shared.ring.full[stage], value_column, i * kTile,
                            at.batch);
    }
}

template <int D>
__device__ void make_dquery(QueryShared<D>& shared, const BackwardTensors& t, const QueryPlace& at) {
    const int group = threadIdx.x / kWarpgroup - 1, first = group * kRows;
    const int row = at.first + first + own_row();
    const float scale_log2 = t.scale * kLog2E;
    const int64_t statistics = int64_t(at.batch * int(t.shape.heads) + at.head) * t.rows.pitch + row;
    const float lse[2] = {t.rows.lse_log2[statistics], t.rows.lse_log2[statistics + 8]};
    const float delta[2] = {t.rows.delta[statistics], t.rows.delta[statistics + 8]};
    float scores[kTile / 2], dscores[kTile / 2], sums[D / 2];
    uint32_t packed[kTile / 4];
#pragma unroll
    for (float& sum : sums) sum = 0.0f;

    shared.owned_full.wait(0);
    for (int i = 0; i < at.tiles; ++i) {
        const int stage = i % kBackwardStages;
        shared.ring.wait_full(i);
        begin_products();
        multiply_rows<D, kOwned, kTile>(scores, shared.queries, first, shared.keys[stage]);
        multiply_rows<D, kOwned, kTile>(dscores, shared.douts, first, shared.values[stage]);
        commit_products();
        wait_products<0>();
        pin(scores);
        pin(dscores);
        const int hidden_from =
            row - i * kTile - own_column();  // columns beyond it come after the thread's first row
#pragma unroll
        for (int k = 0; k < kTile / 2; ++k) {
            const int half = k % 4 / 2, column = k / 4 * 8 + k % 2;
            const float p =
                column > hidden_from + 8 * half ? 0.0f : exp2_fast(scores[k] * scale_log2 - lse[half]);
            dscores[k] = p * (dscores[k] - delta[half]);
        }
        pack(packed, dscores);
        begin_products();
        add_product<D, kTile>(sums, packed, shared.keys[stage]);
        commit_products();
        wait_products<0>();
        pin(sums);
        shared.ring.release(i);
    }
    const float factor[2] = {t.scale, t.scale};
    store_rows<D, kOwned>(t.gradient(at.batch, at.head, at.first + first), sums, factor, shared.queries,
                          first, group + 1);
}

template <int D>
__global__ void __launch_bounds__(kHopperThreads, 1)
    query_kernel(const __grid_constant__ CUtensorMap qkv, const __grid_constant__ CUtensorMap dout,
                 const BackwardTensors t) {
    auto& shared = *reinterpret_cast<QueryShared<D>*>(aligned_tiles());
    const QueryPlace at(t.shape);
    if (threadIdx.x == 0) {
        shared.owned_full.init(1);
        shared.ring.init();
        fence_barrier_init();
    }
    __syncthreads();
    if (threadIdx.x < kWarpgroup) {
        give_registers<kProducerRegisters>();
        if (threadIdx.x == 0) copy_keys<D>(shared, &qkv, &dout, t.shape, at);
    } else {
        take_registers<kConsumerRegisters>();
        make_dquery<D>(shared, t, at);
    }
}

}  // namespace

void hopper_attention_dquery(cudaStream_t stream, const BackwardTensors& t, Tensor dout, Tensor qkv) {
    const AttentionShape& s = t.shape;
    const CUtensorMap qkv_map = tensor_map(qkv, s.batch, s.sequence, kRows);
    const CUtensorMap dout_map = tensor_map(dout, s.batch, s.sequence, kRows);
    const dim3 grid(blocks_for(s.batch * s.heads, 1), blocks_for(s.sequence, kOwned));
    const auto launch = [&](auto kernel, size_t shared) {
        Launch{stream, grid, kHopperThreads, shared + kAlignment}(kernel, qkv_map, dout_map, t);
    };
    if (s.head_size == 64)
        launch(query_kernel<64>, sizeof(QueryShared<64>));
    else
        launch(query_kernel<128>, sizeof(QueryShared<128>));
}

}  // namespace q2::cuda
