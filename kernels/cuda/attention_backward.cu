// Causal attention, backward, by tiles and without float atomics: one kernel owns tiles of queries and makes
// dQ, another owns tiles of keys and makes dK and dV. Both recompute the probabilities from lse.
// With P = exp(S - lse), dP = dO V^T, delta = rowsum(dO * O): dS = P * (dP - delta) / sqrt(D), dQ = dS K,
// dK = dS^T Q, dV = P^T dO (FlashAttention-2, arXiv 2307.08691, section 3.1).
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_hopper.h"

namespace q2::cuda {
namespace {

/// Two tiles stay (Q and dO, or K and V), two pass by, and the probabilities and dS take turns in one.
template <class Shape>
constexpr size_t shared_bytes() {
    return (4 * Shape::kHead + Shape::kScores) * sizeof(float);
}

template <class T>
struct BackwardTensors {
    T* dqkv;
    const T* dout;
    const float *lse, *delta;  // (batch heads, T)
    AttentionHeads<T> heads;

    __device__ HeadRows<T> gradient(int64_t batch, int64_t slot) const {
        const HeadRows<const T> rows = heads.part(batch, slot);
        return {dqkv + (rows.data - heads.qkv), rows.stride, rows.size};
    }
};

/// delta (batch heads, T): a warp a token and head.
template <class T>
__global__ void delta_kernel(float* delta, const T* dout, const T* out, AttentionShape shape) {
    const int64_t pair = int64_t(blockIdx.x) * (blockDim.x / kWarp) + threadIdx.x / kWarp;
    if (pair >= shape.tokens() * shape.heads) return;
    const int64_t token = pair / shape.heads, head = pair % shape.heads;
    const T* a = dout + pair * shape.head_size;
    const T* b = out + pair * shape.head_size;
    float sum = 0.0f;
    for (int64_t i = threadIdx.x % kWarp; i < shape.head_size; i += kWarp)
        sum += to_float(a[i]) * to_float(b[i]);
    sum = warp_reduce(sum, Sum{});
    const int64_t batch = token / shape.sequence, position = token % shape.sequence;
    if (threadIdx.x % kWarp == 0) delta[(batch * shape.heads + head) * shape.sequence + position] = sum;
}

/// The four tiles that a pair of query and key tiles needs.
struct PairTiles {
    float *queries, *douts, *keys, *values;
};

/// The thread's probabilities and dS of a pair of tiles; `rows` is where the head's lse and delta start.
template <int D, int R, class T>
__device__ __forceinline__ void score_gradients(const BackwardTensors<T>& t, const PairTiles& tiles,
                                                int64_t rows, int first_query, int first_key,
                                                float (&p)[R / kSide][R / kSide],
                                                float (&ds)[R / kSide][R / kSide]) {
    constexpr int N = R / kSide;
    const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
    const float scale = t.heads.scale();
    multiply_rows<D, R>(p, tiles.queries, tiles.keys);
    multiply_rows<D, R>(ds, tiles.douts, tiles.values);
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const int query = first_query + y * N + i;
        const bool inside = query < t.heads.shape.sequence;
        const float lse = inside ? t.lse[rows + query] : 0.0f, delta = inside ? t.delta[rows + query] : 0.0f;
#pragma unroll
        for (int j = 0; j < N; ++j) {
            const bool visible = inside && first_key + x + kSide * j <= query;
            p[i][j] = visible ? expf(p[i][j] * scale - lse) : 0.0f;
            ds[i][j] = visible ? p[i][j] * (ds[i][j] - delta) * scale : 0.0f;
        }
    }
}

template <int D, int R>
struct SharedTiles {
    PairTiles tiles;
    float* scores;

    __device__ SharedTiles() {
        float* at = dynamic_shared<float>();
        constexpr int kHead = Tiles<D, R>::kHead;
        tiles = {at, at + kHead, at + 2 * kHead, at + 3 * kHead};
        scores = at + 4 * kHead;
    }
};

/// dQ of a tile of queries of one head, over the tiles of keys they see.
template <int D, int R, class T>
__global__ void __launch_bounds__(kAttentionThreads) query_kernel(BackwardTensors<T> t) {
    constexpr int N = R / kSide;
    const SharedTiles<D, R> shared;
    const AttentionShape& shape = t.heads.shape;
    const int length = int(shape.sequence), first = int(gridDim.x - 1 - blockIdx.x) * R;
    const int64_t batch = blockIdx.y / shape.heads, head = blockIdx.y % shape.heads;
    const int64_t kv_head = t.heads.kv_head_of(head), rows = int64_t(blockIdx.y) * shape.sequence;

    load_tile<D, R>(shared.tiles.queries, t.heads.query(batch, head), first, length);
    load_tile<D, R>(shared.tiles.douts, head_rows(t.dout, shape, batch, head), first, length);
    HeadSums<D, R> dquery;
    clear_sums<D, R>(dquery);
    for (int from = 0; from <= first; from += R) {
        __syncthreads();
        load_tile<D, R>(shared.tiles.keys, t.heads.key(batch, kv_head), from, length);
        load_tile<D, R>(shared.tiles.values, t.heads.value(batch, kv_head), from, length);
        __syncthreads();
        float p[N][N], ds[N][N];
        score_gradients<D, R>(t, shared.tiles, rows, first, from, p, ds);
        store_scores<D, R>(shared.scores, ds);
        __syncthreads();
        add_product<D, R>(dquery, shared.scores, shared.tiles.keys);
    }
    float ones[N];
    for (int i = 0; i < N; ++i) ones[i] = 1.0f;
    store_sums<D, R>(t.gradient(batch, head), first, length, dquery, ones);
}

/// dK and dV of a tile of keys of one key head, over its query heads and the tiles of queries that see it.
template <int D, int R, class T>
__global__ void __launch_bounds__(kAttentionThreads) key_kernel(BackwardTensors<T> t) {
    constexpr int N = R / kSide;
    const SharedTiles<D, R> shared;
    const AttentionShape& shape = t.heads.shape;
    const int length = int(shape.sequence), first = int(blockIdx.x) * R;
    const int64_t batch = blockIdx.y / shape.kv_heads, kv_head = blockIdx.y % shape.kv_heads;
    const int64_t group = shape.heads / shape.kv_heads;

    load_tile<D, R>(shared.tiles.keys, t.heads.key(batch, kv_head), first, length);
    load_tile<D, R>(shared.tiles.values, t.heads.value(batch, kv_head), first, length);
    HeadSums<D, R> dkey, dvalue;
    clear_sums<D, R>(dkey);
    clear_sums<D, R>(dvalue);
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
        for (int from = first; from < length; from += R) {
            __syncthreads();
            load_tile<D, R>(shared.tiles.queries, t.heads.query(batch, head), from, length);
            load_tile<D, R>(shared.tiles.douts, head_rows(t.dout, shape, batch, head), from, length);
            __syncthreads();
            float p[N][N], ds[N][N];
            score_gradients<D, R>(t, shared.tiles, (batch * shape.heads + head) * shape.sequence, from, first,
                                  p, ds);
            store_scores<D, R>(shared.scores, p);
            __syncthreads();
            add_transposed_product<D, R>(dvalue, shared.scores, shared.tiles.douts);
            __syncthreads();
            store_scores<D, R>(shared.scores, ds);
            __syncthreads();
            add_transposed_product<D, R>(dkey, shared.scores, shared.tiles.queries);
        }
    float ones[N];
    for (int i = 0; i < N; ++i) ones[i] = 1.0f;
    store_sums<D, R>(t.gradient(batch, shape.heads + kv_head), first, length, dkey, ones);
    store_sums<D, R>(t.gradient(batch, shape.heads + shape.kv_heads + kv_head), first, length, dvalue, ones);
}

/// The largest tile that the device's shared memory holds.
template <class F>
void for_tile_size(int64_t head_size, size_t shared_memory, F f) {
    if (head_size <= 64) return f(TileSize<64, 64>{});
    if (head_size <= 128) {
        if (shared_bytes<Tiles<128, 64>>() <= shared_memory) return f(TileSize<128, 64>{});
        return f(TileSize<128, 32>{});
    }
    if (shared_bytes<Tiles<256, 32>>() <= shared_memory) return f(TileSize<256, 32>{});
    f(TileSize<256, 16>{});
}

}  // namespace

void attention_backward(Context& ctx, Tensor dqkv, Tensor dout, Tensor out, Tensor lse, Tensor qkv,
                        AttentionShape shape) {
    check_attention("attention_backward", shape, qkv);
    check_attention("attention_backward", shape, dqkv);
    require(dout.rows == shape.tokens() && dout.cols == shape.out_width() && out.size() == dout.size(),
            "attention_backward: dout is (", dout.rows, ", ", dout.cols, ")");
    if (hopper_attention_fits(ctx, qkv, shape))
        return hopper_attention_backward(ctx, dqkv, dout, out, lse, qkv, shape);
    float* delta = Scratch(ctx, "attention_backward").take<float>(lse.size());
    constexpr int kWarps = kThreads / kWarp;
    for_float_type(dout.dtype, [&](auto type) {
        for_tile_size(shape.head_size, size_t(state_of(ctx).shared_memory), [&](auto size) {
            using T = decltype(type);
            using Size = decltype(size);
            constexpr size_t kShared = shared_bytes<typename Size::Shape>();
            const BackwardTensors<T> t{dqkv.as<T>(), dout.as<T>(), lse.as<float>(), delta,
                                       AttentionHeads<T>{qkv.as<T>(), shape}};
            const unsigned tiles = blocks_for(shape.sequence, Size::kR);
            const dim3 of_queries(tiles, blocks_for(shape.batch * shape.heads, 1));
            const dim3 of_keys(tiles, blocks_for(shape.batch * shape.kv_heads, 1));
            const cudaStream_t stream = stream_of(ctx);
            Launch{stream, blocks_for(lse.size(), kWarps), kThreads}(delta_kernel<T>, delta, dout.as<T>(),
                                                                     out.as<T>(), shape);
            Launch{stream, of_queries, kAttentionThreads, kShared}(query_kernel<Size::kD, Size::kR, T>, t);
            Launch{stream, of_keys, kAttentionThreads, kShared}(key_kernel<Size::kD, Size::kR, T>, t);
        });
    });
}

size_t attention_scratch(AttentionShape shape) {
    return std::max(Scratch::rounded(size_t(shape.tokens() * shape.heads) * sizeof(float)),
                    hopper_attention_scratch(shape));
}

}  // namespace q2::cuda
