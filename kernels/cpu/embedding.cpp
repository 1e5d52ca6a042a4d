// Embedding: out[n] = table[ids[n]]; its gradient gathers the rows of a token in the order of n.
#include <algorithm>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"

namespace q2::cpu {
namespace {

/// Counting sort: the rows with id v are order[start[v]..start[v + 1]), ascending.
void sort_by_id(const int32_t* ids, int64_t count, int64_t vocab, int64_t* start, int64_t* order) {
    std::fill(start, start + vocab + 2, 0);
    for (int64_t n = 0; n < count; ++n) ++start[ids[n] + 2];
    for (int64_t v = 2; v < vocab + 2; ++v) start[v] += start[v - 1];
    for (int64_t n = 0; n < count; ++n) order[start[ids[n] + 1]++] = n;
}

template <class T>
void add_row(float* to, const T* from, int64_t width) {
#pragma omp simd
    for (int64_t c = 0; c < width; ++c) to[c] += to_float(from[c]);
}

}  // namespace

void embedding_forward(Context&, Tensor out, Tensor table, Tensor ids) {
    require_shape("embedding_forward: out", out, ids.rows, table.cols);
    require_ids("embedding_forward: token", ids, 0, table.rows);
    const int64_t width = table.cols;
    const float* weights = table.as<float>();
    const int32_t* id = ids.as<int32_t>();
    for_float_type(out.dtype, [&](auto type) {
        using T = decltype(type);
        T* to = out.as<T>();
        parallel_rows(out.rows, [=](int64_t first, int64_t last) {
            for (int64_t n = first; n < last; ++n)
                for (int64_t c = 0; c < width; ++c)
                    to[n * width + c] = from_float<T>(weights[id[n] * width + c]);
        });
    });
}

void embedding_backward(Context& ctx, Tensor dtable, Tensor dout, Tensor ids) {
    require_shape("embedding_backward: dout", dout, ids.rows, dtable.cols);
    require_ids("embedding_backward: token", ids, 0, dtable.rows);
    Scratch scratch(ctx, "embedding_backward");
    const int64_t width = dtable.cols, vocab = dtable.rows;
    int64_t* start = scratch.take<int64_t>(vocab + 2);
    int64_t* order = scratch.take<int64_t>(ids.rows);
    sort_by_id(ids.as<int32_t>(), ids.rows, vocab, start, order);
    float* gradient = dtable.as<float>();
    for_float_type(dout.dtype, [&](auto type) {
        const auto* from = dout.as<decltype(type)>();
        parallel_rows(vocab, [=](int64_t first, int64_t last) {
            for (int64_t v = first; v < last; ++v)
                for (int64_t i = start[v]; i < start[v + 1]; ++i)
                    add_row(gradient + v * width, from + order[i] * width, width);
        });
    });
}

size_t embedding_backward_scratch(int64_t tokens, int64_t vocab) {
    return Scratch::rounded((vocab + 2) * sizeof(int64_t)) + Scratch::rounded(tokens * sizeof(int64_t));
}

}  // namespace q2::cpu
