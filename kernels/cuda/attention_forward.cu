// Causal attention, forward: out = softmax(Q K^T / sqrt(D)) V by tiles with a running maximum and sum
// (FlashAttention, arXiv 2205.14135), float32 arithmetic. A block owns a tile of queries of one head.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_hopper.h"

namespace q2::cuda {
namespace {

/// Keys and values take turns in one tile, so that a block fits the smaller GPUs' shared memory.
template <class Shape>
constexpr size_t shared_bytes() {
    return (2 * Shape::kHead + Shape::kScores) * sizeof(float);
}

/// The softmax of a thread's rows so far: running maximum and sum of exponentials.
template <int N>
struct RunningSoftmax {
    float max[N], sum[N];
};

/// Scores become exponentials under the new running maximum; `shrink` is what earlier sums are worth under
/// it. A row's maximum is finite from the first tile on: key 0 is visible to every query.
template <int N>
__device__ __forceinline__ void update_softmax(RunningSoftmax<N>& running, float (&s)[N][N],
                                               float (&shrink)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
        float largest = running.max[i];
#pragma unroll
        for (int j = 0; j < N; ++j) largest = fmaxf(largest, s[i][j]);
        largest = warp_reduce<kSide>(largest, Max{});
        shrink[i] = expf(running.max[i] - largest);
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < N; ++j) {
            s[i][j] = expf(s[i][j] - largest);
            sum += s[i][j];
        }
        running.max[i] = largest;
        running.sum[i] = running.sum[i] * shrink[i] + warp_reduce<kSide>(sum, Sum{});
    }
}

template <int D, int R, class T>
__global__ void __launch_bounds__(kAttentionThreads)
    forward_kernel(T* out, float* lse, AttentionHeads<T> heads, uint32_t* amax) {
    using Shape = Tiles<D, R>;
    constexpr int N = Shape::N;
    float* queries = dynamic_shared<float>();
    float* keys = queries + Shape::kHead;  // then the values
    float* scores = keys + Shape::kHead;
    const AttentionShape& shape = heads.shape;
    const int length = int(shape.sequence);
    const int first = int(gridDim.x - 1 - blockIdx.x) * R;  // the longest rows start first
    const int64_t batch = blockIdx.y / shape.heads, head = blockIdx.y % shape.heads;
    const int64_t kv_head = heads.kv_head_of(head);
    const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;

    load_tile<D, R>(queries, heads.query(batch, head), first, length);
    HeadSums<D, R> sums;
    clear_sums<D, R>(sums);
    RunningSoftmax<N> running;
    for (int i = 0; i < N; ++i) running.max[i] = -INFINITY, running.sum[i] = 0.0f;
    for (int from = 0; from <= first; from += R) {
        __syncthreads();  // the values before have been used
        load_tile<D, R>(keys, heads.key(batch, kv_head), from, length);
        __syncthreads();
        float s[N][N], shrink[N];
        multiply_rows<D, R>(s, queries, keys);
        for (int i = 0; i < N; ++i)
            for (int j = 0; j < N; ++j)
                s[i][j] = from + x + kSide * j <= first + y * N + i ? s[i][j] * heads.scale() : -INFINITY;
        update_softmax<N>(running, s, shrink);
        store_scores<D, R>(scores, s);
        __syncthreads();  // the keys have been used, the scores are there
        load_tile<D, R>(keys, heads.value(batch, kv_head), from, length);
        for (int i = 0; i < N; ++i)
            for (int c = 0; c < Shape::C; ++c)
                for (int k = 0; k < 4; ++k) sums[i][c][k] *= shrink[i];
        __syncthreads();
        add_product<D, R>(sums, scores, keys);
    }
    float inverse[N];
    for (int i = 0; i < N; ++i) {
        inverse[i] = 1.0f / running.sum[i];
        const int row = first + y * N + i;
        if (x == 0 && row < length)
            lse[(batch * shape.heads + head) * shape.sequence + row] = running.max[i] + logf(running.sum[i]);
    }
    const uint32_t largest =
        store_sums<D, R>(head_rows(out, shape, batch, head), first, length, sums, inverse);
    if (amax) block_amax_into(amax, largest);
}

template <class F>
void for_tile_size(int64_t head_size, F f) {
    if (head_size <= 64) return f(TileSize<64, 64>{});
    if (head_size <= 128) return f(TileSize<128, 64>{});
    f(TileSize<256, 32>{});
}

}  // namespace

void attention_forward(Context& ctx, Tensor out, Tensor lse, Tensor qkv, AttentionShape shape, Amax* amax) {
    check_attention("attention_forward", shape, qkv);
    require(
        out.rows == shape.tokens() && out.cols == shape.out_width() && lse.size() == shape.heads * out.rows,
        "attention_forward: out is (", out.rows, ", ", out.cols, "), lse has ", lse.size(), " values");
    if (hopper_attention_fits(ctx, qkv, shape))
        return hopper_attention_forward(ctx, out, lse, qkv, shape, amax);
    for_float_type(out.dtype, [&](auto type) {
        for_tile_size(shape.head_size, [&](auto size) {
            using T = decltype(type);
            using Size = decltype(size);
            const dim3 grid(blocks_for(shape.sequence, Size::kR), blocks_for(shape.batch * shape.heads, 1));
            Launch{stream_of(ctx), grid, kAttentionThreads, shared_bytes<typename Size::Shape>()}(
                forward_kernel<Size::kD, Size::kR, T>, out.as<T>(), lse.as<float>(),
                AttentionHeads<T>{qkv.as<T>(), shape}, cleared(ctx, amax));
        });
    });
}

}  // namespace q2::cuda
