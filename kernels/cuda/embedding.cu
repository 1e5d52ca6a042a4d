// Embedding rows out, and their gradients back. The backward sorts (id, token) pairs, so that each row of the
// table is owned by one block that adds its tokens' gradients in a fixed order: no float atomics.
#include "kernels/cuda/elementwise.h"

namespace q2::cuda {
namespace {

// ---- Forward

template <int W, class T>
__global__ void forward_kernel(T* out, const float* table, const int32_t* ids, int64_t tokens,
                               int64_t groups) {
    strided_for(tokens * groups, [&](int64_t i) {
        const int64_t token = i / groups, col = i % groups * W, width = groups * W;
        float x[W];
        load<W>(table + ids[token] * width + col, x);
        store<W>(out + token * width + col, x);
    });
}

// ---- Sort: a bitonic network over id << 32 | token. The keys differ, so their order is unique.

constexpr int kSortTile = 2048;  // keys a block sorts in shared memory
constexpr uint64_t kPaddingKey = ~uint64_t(0);

int64_t padded_keys(int64_t tokens) {
    int64_t count = kSortTile;
    while (count < tokens) count *= 2;
    return count;
}

__global__ void make_keys(uint64_t* keys, const int32_t* ids, int64_t tokens, int64_t count) {
    strided_for(count, [&](int64_t i) {
        keys[i] = i < tokens ? uint64_t(uint32_t(ids[i])) << 32 | uint64_t(i) : kPaddingKey;
    });
}

/// One comparator: the pair `distance` apart that `pair` numbers, ascending where bit `run` of its index is
/// 0.
__device__ __forceinline__ void compare_exchange(uint64_t* keys, int64_t first, int64_t pair, int64_t run,
                                                 int64_t distance) {
    const int64_t low = pair / distance * 2 * distance + pair % distance, high = low + distance;
    const uint64_t a = keys[low], b = keys[high];
    const bool ascending = ((first + low) & run) == 0;
    if ((a > b) == ascending) {
        keys[low] = b;
        keys[high] = a;
    }
}

/// Sorts or merges runs inside tiles: all stages up to runs of `last_run`, from runs of `first_run`.
__global__ void sort_tiles(uint64_t* keys, int64_t first_run, int64_t last_run) {
    __shared__ uint64_t tile[kSortTile];
    uint64_t* from = keys + int64_t(blockIdx.x) * kSortTile;
    for (int i = threadIdx.x; i < kSortTile; i += blockDim.x) tile[i] = from[i];
    for (int64_t run = first_run; run <= last_run; run *= 2)
        for (int64_t distance = min(run, int64_t(kSortTile)) / 2; distance > 0; distance /= 2) {
            __syncthreads();
            for (int pair = threadIdx.x; pair < kSortTile / 2; pair += blockDim.x)
                compare_exchange(tile, int64_t(blockIdx.x) * kSortTile, pair, run, distance);
        }
    __syncthreads();
    for (int i = threadIdx.x; i < kSortTile; i += blockDim.x) from[i] = tile[i];
}

__global__ void merge_step(uint64_t* keys, int64_t pairs, int64_t run, int64_t distance) {
    strided_for(pairs, [&](int64_t pair) { compare_exchange(keys, 0, pair, run, distance); });
}

void sort_keys(Context& ctx, uint64_t* keys, int64_t count) {
    const Launch tiles{stream_of(ctx), blocks_for(count, kSortTile), kThreads};
    tiles(sort_tiles, keys, 2, kSortTile);
    for (int64_t run = 2 * kSortTile; run <= count; run *= 2) {
        for (int64_t distance = run / 2; distance >= kSortTile; distance /= 2)
            strided_launch(ctx, count / 2)(merge_step, keys, count / 2, run, distance);
        tiles(sort_tiles, keys, run, run);
    }
}

// ---- Add: the block at the first key of an id adds that id's rows, its warps taking turns, 32 * W columns

constexpr int kAddWarps = 8;

__device__ __forceinline__ uint32_t id_of(uint64_t key) { return uint32_t(key >> 32); }

template <int W, class T>
__global__ void add_rows(float* dtable, const T* dout, const uint64_t* keys, int64_t tokens, int64_t width) {
    const int64_t start = blockIdx.x;
    const uint32_t id = id_of(keys[start]);
    if (start > 0 && id_of(keys[start - 1]) == id) return;
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    const int64_t col = (int64_t(blockIdx.y) * kWarp + lane) * W;
    float sum[W] = {};
    if (col < width)
        for (int64_t i = start + warp; i < tokens && id_of(keys[i]) == id; i += kAddWarps) {
            float row[W];
            load<W>(dout + int64_t(uint32_t(keys[i])) * width + col, row);
            for (int j = 0; j < W; ++j) sum[j] += row[j];
        }
    __shared__ float of_warp[kAddWarps][kWarp * W];
    for (int j = 0; j < W; ++j) of_warp[warp][lane * W + j] = sum[j];
    __syncthreads();
    if (warp > 0 || col >= width) return;
    float total[W];
    load<W>(dtable + id * width + col, total);
    for (int j = 0; j < W; ++j)
        for (int w = 0; w < kAddWarps; ++w) total[j] += of_warp[w][lane * W + j];
    store<W>(dtable + id * width + col, total);
}

void check_shapes(const char* op, Tensor rows, Tensor table, Tensor ids) {
    require(rows.rows == ids.size() && rows.cols == table.cols, op, ": ", ids.size(), " ids, rows (",
            rows.rows, ", ", rows.cols, "), table (", table.rows, ", ", table.cols, ")");
}

}  // namespace

void embedding_forward(Context& ctx, Tensor out, Tensor table, Tensor ids) {
    check_shapes("embedding_forward", out, table, ids);
    for_float_type(out.dtype, [&](auto type) {
        for_width(rows_are_wide({out, table}), [&](auto width) {
            using T = decltype(type);
            strided_launch(ctx, out.size() / width)(forward_kernel<width, T>, out.as<T>(), table.as<float>(),
                                                    ids.as<int32_t>(), out.rows, out.cols / width);
        });
    });
}

void embedding_backward(Context& ctx, Tensor dtable, Tensor dout, Tensor ids) {
    check_shapes("embedding_backward", dout, dtable, ids);
    const int64_t tokens = dout.rows, count = padded_keys(tokens);
    uint64_t* keys = Scratch(ctx, "embedding_backward").take<uint64_t>(count);
    strided_launch(ctx, count)(make_keys, keys, ids.as<int32_t>(), tokens, count);
    sort_keys(ctx, keys, count);
    for_float_type(dout.dtype, [&](auto type) {
        for_width(rows_are_wide({dtable, dout}), [&](auto width) {
            using T = decltype(type);
            const dim3 grid(blocks_for(tokens, 1), blocks_for(dout.cols, kWarp * width));
            Launch{stream_of(ctx), grid, kAddWarps * kWarp}(add_rows<width, T>, dtable.as<float>(),
                                                            dout.as<T>(), keys, tokens, dout.cols);
        });
    });
}

size_t embedding_backward_scratch(int64_t tokens, int64_t) {
    return Scratch::rounded(padded_keys(tokens) * sizeof(uint64_t));
}

}  // namespace q2::cuda
