// Causal attention on Hopper, forward: out = softmax(Q K^T / sqrt(D)) V by tiles with a running maximum and
// sum (FlashAttention, arXiv 2205.14135), products on the tensor cores while the softmax of the tile before
// is at work (FlashAttention-3, arXiv 2407.08608, section 3.2). A block owns 128 queries of one head: one
// warpgroup copies keys and values ahead, two own 64 queries each.
#include "kernels/cuda/attention_hopper.h"

namespace q2::cuda {
namespace {

constexpr int kQueries = 2 * kRows, kKeys = kQueries, kStages = 2;

template <int D>
struct ForwardShared {
    Bf16 queries[tile_size<D>(kQueries)];
    Bf16 keys[kStages][tile_size<D>(kKeys)];
    Bf16 values[kStages][tile_size<D>(kKeys)];
    Barrier queries_full, keys_full[kStages], values_full[kStages], keys_empty[kStages],
        values_empty[kStages];
};

struct ForwardTensors {
    Bf16* out;
    float* lse;
    AttentionShape shape;
    float scale;  // 1 / sqrt(D)
    uint32_t* amax;
};

/// Where a block stands: its queries, its head, the key tiles that they see.
struct Place {
    int batch, head, kv_head, first, tiles;

    __device__ explicit Place(const AttentionShape& s)
        : batch(blockIdx.x / int(s.heads)),
          head(blockIdx.x % int(s.heads)),
          kv_head(head / int(s.heads / s.kv_heads)),
          first(int(gridDim.y - 1 - blockIdx.y) * kQueries),  // the longest rows start first
          tiles((min(first + kQueries, int(s.sequence)) + kKeys - 1) / kKeys) {}
};

/// One thread: queries, then tiles of keys and values from the diagonal back to the start.
template <int D>
__device__ void copy_ahead(ForwardShared<D>& shared, const CUtensorMap* qkv, const AttentionShape& s,
                           const Place& at) {
    constexpr uint32_t kTileBytes = tile_size<D>(kKeys) * sizeof(Bf16);
    const int key_column = int(s.heads + at.kv_head) * D, value_column = key_column + int(s.kv_heads) * D;
    shared.queries_full.arrive_and_expect(kTileBytes);
    copy_tile<D, kQueries>(shared.queries, qkv, shared.queries_full, at.head * D, at.first, at.batch);
    for (int i = 0; i < at.tiles; ++i) {
        const int stage = i % kStages, row = (at.tiles - 1 - i) * kKeys;
        const uint32_t parity = i / kStages % 2 ^ 1;
        shared.keys_empty[stage].wait(parity);
        shared.keys_full[stage].arrive_and_expect(kTileBytes);
        copy_tile<D, kKeys>(shared.keys[stage], qkv, shared.keys_full[stage], key_column, row, at.batch);
        shared.values_empty[stage].wait(parity);
        shared.values_full[stage].arrive_and_expect(kTileBytes);
        copy_tile<D, kKeys>(shared.values[stage], qkv, shared.values_full[stage], value_column, row,
                            at.batch);
    }
}

/// The softmax of a thread's two rows so far.
struct RowSoftmax {
    float max[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};

    /// Scores (x scale) become exponentials under the new maximum; `shrink` is what earlier sums are worth
    /// under it.
    __device__ __forceinline__ void update(float (&s)[kKeys / 2], float scale_log2, float (&shrink)[2]) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float largest = max[half];
#pragma unroll
            for (int i = 2 * half; i < kKeys / 2; i += 4) largest = fmaxf(largest, fmaxf(s[i], s[i + 1]));
            largest = warp_reduce<4>(largest, Max{});
            const float shift = largest * scale_log2;
            shrink[half] = exp2_fast(max[half] * scale_log2 - shift);
            float total = 0.0f;
#pragma unroll
            for (int i = 2 * half; i < kKeys / 2; i += 4) {
                s[i] = exp2_fast(s[i] * scale_log2 - shift);
                s[i + 1] = exp2_fast(s[i + 1] * scale_log2 - shift);
                total += s[i] + s[i + 1];
            }
            max[half] = largest;
            sum[half] = sum[half] * shrink[half] + total;
        }
    }
};

/// Hides the keys after a query. `row`: the thread's first query, `col`: its first key, both in the sequence.
__device__ __forceinline__ void mask(float (&s)[kKeys / 2], int row, int col) {
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i)
        if (col + i / 4 * 8 + i % 2 > row + i % 4 / 2 * 8) s[i] = -INFINITY;
}

template <int D>
__device__ void attend(ForwardShared<D>& shared, const ForwardTensors& t, const Place& at) {
    const int group = threadIdx.x / kWarpgroup - 1, first = group * kRows;
    const int row = at.first + first + own_row();
    const float scale_log2 = t.scale * 1.4426950408889634f;
    const bool one_of_warp = threadIdx.x % kWarp == 0;
    float scores[kKeys / 2], sums[D / 2], shrink[2];
    uint32_t weights[kKeys / 4];
    RowSoftmax softmax;
#pragma unroll
    for (float& sum : sums) sum = 0.0f;

    shared.queries_full.wait(0);
    shared.keys_full[0].wait(0);
    begin_products();
    multiply_rows<D, kQueries, kKeys>(scores, shared.queries, first, shared.keys[0]);
    commit_products();
    wait_products<0>();
    pin(scores);
    if (one_of_warp) shared.keys_empty[0].arrive();
    mask(scores, row,
         (at.tiles - 1) * kKeys + own_column());  // tiles are as wide as high: none but the diagonal's
    softmax.update(scores, scale_log2, shrink);
    pack(weights, scores);
    for (int i = 1; i < at.tiles; ++i) {
        const int stage = i % kStages, before = (i - 1) % kStages;
        shared.keys_full[stage].wait(i / kStages % 2);
        begin_products();
        multiply_rows<D, kQueries, kKeys>(scores, shared.queries, first, shared.keys[stage]);
        commit_products();
        shared.values_full[before].wait((i - 1) / kStages % 2);
        begin_products();
        add_product<D, kKeys>(sums, weights, shared.values[before]);
        commit_products();
        wait_products<1>();
        pin(scores);
        if (one_of_warp) shared.keys_empty[stage].arrive();
        softmax.update(scores, scale_log2, shrink);
        wait_products<0>();
        pin(sums);
        if (one_of_warp) shared.values_empty[before].arrive();
#pragma unroll
        for (int k = 0; k < D / 2; ++k) sums[k] *= shrink[k % 4 / 2];
        pack(weights, scores);
    }
    const int last = (at.tiles - 1) % kStages;
    shared.values_full[last].wait((at.tiles - 1) / kStages % 2);
    begin_products();
    add_product<D, kKeys>(sums, weights, shared.values[last]);
    commit_products();
    wait_products<0>();
    pin(sums);

    float inverse[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float total = warp_reduce<4>(softmax.sum[half], Sum{});
        inverse[half] = 1.0f / total;
        if (own_column() == 0 && row + 8 * half < t.shape.sequence)
            t.lse[(at.batch * t.shape.heads + at.head) * t.shape.sequence + row + 8 * half] =
                softmax.max[half] * t.scale + logf(total);
    }
    const int64_t token = at.batch * t.shape.sequence + at.first + first;
    const HeadSlice to{t.out + token * t.shape.out_width() + at.head * D, t.shape.out_width(),
                       int(t.shape.sequence) - at.first - first};
    uint32_t largest = store_rows<D, kQueries>(to, sums, inverse, shared.queries, first, group + 1);
    if (!t.amax) return;
    largest = warp_reduce(largest, Max{});
    if (threadIdx.x % kWarp == 0) amax_into(t.amax, largest);
}

template <int D>
__global__ void __launch_bounds__(kHopperThreads, 1)
    forward_kernel(const __grid_constant__ CUtensorMap qkv, const ForwardTensors t) {
    auto& shared = *reinterpret_cast<ForwardShared<D>*>(aligned_tiles());
    const Place at(t.shape);
    if (threadIdx.x == 0) {
        shared.queries_full.init(1);
        for (int stage = 0; stage < kStages; ++stage) {
            shared.keys_full[stage].init(1);
            shared.values_full[stage].init(1);
            shared.keys_empty[stage].init(kConsumerWarps);
            shared.values_empty[stage].init(kConsumerWarps);
        }
        fence_barrier_init();
    }
    __syncthreads();
    if (threadIdx.x < kWarpgroup) {
        give_registers<kProducerRegisters>();
        if (threadIdx.x == 0) copy_ahead<D>(shared, &qkv, t.shape, at);
    } else {
        take_registers<kConsumerRegisters>();
        attend<D>(shared, t, at);
    }
}

}  // namespace

void hopper_attention_forward(Context& ctx, Tensor out, Tensor lse, Tensor qkv, const AttentionShape& s,
                              Amax* amax) {
    const ForwardTensors t{out.as<Bf16>(), lse.as<float>(), s, 1.0f / std::sqrt(float(s.head_size)),
                           cleared(ctx, amax)};
    const dim3 grid(blocks_for(s.batch * s.heads, 1), blocks_for(s.sequence, kQueries));
    const CUtensorMap map = tensor_map(qkv, s.batch, s.sequence, kKeys);
    const auto launch = [&](auto kernel, size_t shared) {
        Launch{stream_of(ctx), grid, kHopperThreads, shared + kAlignment}(kernel, map, t);
    };
    if (s.head_size == 64)
        launch(forward_kernel<64>, sizeof(ForwardShared<64>));
    else
        launch(forward_kernel<128>, sizeof(ForwardShared<128>));
}

}  // namespace q2::cuda
