// Hopper's backward attention, dK and dV: a block owns 128 keys of a key head; the queries that see them pass
// by, of every head that shares the keys. Products run on transposed scores, since what a product leaves in
// registers is the first operand of the next.
#include "kernels/cuda/attention_hopper_backward.h"

namespace q2::cuda {
namespace {

template <int D>
struct KeyShared {
    Bf16 keys[tile_size<D>(kOwned)], values[tile_size<D>(kOwned)];
    Bf16 queries[kBackwardStages][tile_size<D>(kTile)], douts[kBackwardStages][tile_size<D>(kTile)];
    alignas(16) float lse_log2[kBackwardStages][kTile];
    alignas(16) float delta[kBackwardStages][kTile];
    Barrier owned_full;
    Ring ring;
};

/// Where a block of the second kernel stands: its keys, and the tiles of queries that see them, for every
/// head of the group that shares the keys.
struct KeyPlace {
    int batch, kv_head, first, heads, tiles;

    __device__ explicit KeyPlace(const AttentionShape& s)
        : batch(blockIdx.x / int(s.kv_heads)),
          kv_head(blockIdx.x % int(s.kv_heads)),
          first(int(blockIdx.y) * kOwned),
          heads(int(s.heads / s.kv_heads)),
          tiles((int(s.sequence) - first + kTile - 1) / kTile) {}

    __device__ int head(int i) const { return kv_head * heads + i / tiles; }
    __device__ int query(int i) const { return first + i % tiles * kTile; }
    __device__ int count() const { return heads * tiles; }
};

template <int D>
__device__ void copy_queries(KeyShared<D>& shared, const CUtensorMap* qkv, const CUtensorMap* dout,
                             const BackwardTensors& t, const KeyPlace& at) {
    constexpr uint32_t kOwnedBytes = tile_size<D>(kOwned) * sizeof(Bf16),
                       kTileBytes = tile_size<D>(kTile) * sizeof(Bf16);
    constexpr uint32_t kRowBytes = kTile * sizeof(float);
    const AttentionShape& s = t.shape;
    const int key_column = int(s.heads + at.kv_head) * D, value_column = key_column + int(s.kv_heads) * D;
    shared.owned_full.arrive_and_expect(2 * kOwnedBytes);
    copy_owned<D>(shared.keys, qkv, shared.owned_full, key_column, at.first, at.batch);
    copy_owned<D>(shared.values, qkv, shared.owned_full, value_column, at.first, at.batch);
    for (int i = 0; i < at.count(); ++i) {
        const int stage = i % kBackwardStages, head = at.head(i), row = at.query(i);
        const int64_t statistics = int64_t(at.batch * int(s.heads) + head) * t.rows.pitch + row;
        Barrier& full = shared.ring.full[stage];
        shared.ring.wait_empty(i);
        full.arrive_and_expect(2 * kTileBytes + 2 * kRowBytes);
        copy_tile<D, kTile>(shared.queries[stage], qkv, full, head * D, row, at.batch);
        copy_tile<D, kTile>(shared.douts[stage], dout, full, head * D, row, at.batch);
        copy_bytes(shared.lse_log2[stage], t.rows.lse_log2 + statistics, full, kRowBytes);
        copy_bytes(shared.delta[stage], t.rows.delta + statistics, full, kRowBytes);
    }
}

template <int D>
__device__ void make_dkey(KeyShared<D>& shared, const BackwardTensors& t, const KeyPlace& at) {
    const int group = threadIdx.x / kWarpgroup - 1, first = group * kRows;
    const int row = at.first + first + own_row();
    const float scale_log2 = t.scale * kLog2E;
    float scores[kTile / 2], dscores[kTile / 2];  // (keys, queries)
    float dkey[D / 2], dvalue[D / 2];
    uint32_t packed[kTile / 4], dpacked[kTile / 4];
#pragma unroll
    for (int k = 0; k < D / 2; ++k) dkey[k] = dvalue[k] = 0.0f;

    shared.owned_full.wait(0);
    for (int i = 0; i < at.count(); ++i) {
        const int stage = i % kBackwardStages;
        shared.ring.wait_full(i);
        begin_products();
        multiply_rows<D, kOwned, kTile>(scores, shared.keys, first, shared.queries[stage]);
        commit_products();
        multiply_rows<D, kOwned, kTile>(dscores, shared.values, first, shared.douts[stage]);
        commit_products();
        wait_products<1>();
        pin(scores);
        const int hidden_before =
            row - at.query(i) - own_column();  // columns before it cannot see the first row
#pragma unroll
        for (int k = 0; k < kTile / 2; ++k) {
            const int column = k / 4 * 8 + k % 2;
            const float lse = shared.lse_log2[stage][column + own_column()];
            scores[k] =
                column < hidden_before + k % 4 / 2 * 8 ? 0.0f : exp2_fast(scores[k] * scale_log2 - lse);
        }
        pack(packed, scores);
        wait_products<0>();
        pin(dscores);
        begin_products();
        add_product<D, kTile>(dvalue, packed, shared.douts[stage]);
        commit_products();
#pragma unroll
        for (int k = 0; k < kTile / 2; ++k)
            dscores[k] = scores[k] * (dscores[k] - shared.delta[stage][k / 4 * 8 + k % 2 + own_column()]);
        pack(dpacked, dscores);
        begin_products();
        add_product<D, kTile>(dkey, dpacked, shared.queries[stage]);
        commit_products();
        wait_products<0>();
        pin(dvalue);
        pin(dkey);
        shared.ring.release(i);
    }
    const float scaled[2] = {t.scale, t.scale}, plain[2] = {1.0f, 1.0f};
    const int heads = int(t.shape.heads), kv_heads = int(t.shape.kv_heads);
    store_rows<D, kOwned>(t.gradient(at.batch, heads + at.kv_head, at.first + first), dkey, scaled,
                          shared.keys, first, group + 1);
    store_rows<D, kOwned>(t.gradient(at.batch, heads + kv_heads + at.kv_head, at.first + first), dvalue,
                          plain, shared.values, first, group + 1);
}

template <int D>
__global__ void __launch_bounds__(kHopperThreads, 1)
    key_kernel(const __grid_constant__ CUtensorMap qkv, const __grid_constant__ CUtensorMap dout,
               const BackwardTensors t) {
    auto& shared = *reinterpret_cast<KeyShared<D>*>(aligned_tiles());
    const KeyPlace at(t.shape);
    if (threadIdx.x == 0) {
        shared.owned_full.init(1);
        shared.ring.init();
        fence_barrier_init();
    }
    __syncthreads();
    if (threadIdx.x < kWarpgroup) {
        give_registers<kProducerRegisters>();
        if (threadIdx.x == 0) copy_queries<D>(shared, &qkv, &dout, t, at);
    } else {
        take_registers<kConsumerRegisters>();
        make_dkey<D>(shared, t, at);
    }
}

}  // namespace

void hopper_attention_dkey(cudaStream_t stream, const BackwardTensors& t, Tensor dout, Tensor qkv) {
    const AttentionShape& s = t.shape;
    const CUtensorMap qkv_map = tensor_map(qkv, s.batch, s.sequence, kRows);
    const CUtensorMap dout_map = tensor_map(dout, s.batch, s.sequence, kRows);
    const dim3 grid(blocks_for(s.batch * s.kv_heads, 1), blocks_for(s.sequence, kOwned));
    const auto launch = [&](auto kernel, size_t shared) {
        Launch{stream, grid, kHopperThreads, shared + kAlignment}(kernel, qkv_map, dout_map, t);
    };
    if (s.head_size == 64)
        launch(key_kernel<64>, sizeof(KeyShared<64>));
    else
        launch(key_kernel<128>, sizeof(KeyShared<128>));
}

}  // namespace q2::cuda
