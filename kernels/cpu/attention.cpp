// Causal attention: softmax(Q K^T / sqrt(D)) V a (sequence, head), in tiles of query rows. A tile multiplies
// only the keys up to its own end, so the masked half costs nothing and no T x T matrix exists.
//
// Backward (FlashAttention, arXiv 2205.14135): P = exp(S - lse), delta = rowsum(dO * O),
// dV += P^T dO, dS = P * (dO V^T - delta), dQ = dS K / sqrt(D), dK += dS^T Q / sqrt(D).
#include <cblas.h>

#include <algorithm>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

extern "C" void openblas_set_num_threads(int);

namespace q2::cpu {
namespace {

constexpr int64_t kTile = 64;  // query rows

/// c (m, n; row stride ldc) = alpha op(a) op(b) + beta c in one thread; op(a) is (m, k), op(b) (k, n).
struct Product {
    CBLAS_TRANSPOSE a_op, b_op;
    void operator()(int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda, const float* b,
                    int64_t ldb, float beta, float* c, int64_t ldc) const {
        cblas_sgemm(CblasRowMajor, a_op, b_op, int(m), int(n), int(k), alpha, a, int(lda), b, int(ldb), beta,
                    c, int(ldc));
    }
};
constexpr Product product_ab{CblasNoTrans, CblasNoTrans}, product_abt{CblasNoTrans, CblasTrans},
    product_atb{CblasTrans, CblasNoTrans};

/// One head's columns of a (tokens, stride) matrix, from a sequence's first row on.
template <class T>
struct HeadView {
    T* data;
    int64_t stride, size;

    void load(int64_t first, int64_t count, float* to) const {
        for (int64_t row = 0; row < count; ++row)
            for (int64_t c = 0; c < size; ++c)
                to[row * size + c] = to_float(data[(first + row) * stride + c]);
    }
    /// Returns the largest magnitude, as stored.
    uint32_t store(int64_t first, int64_t count, const float* from) const {
        uint32_t largest = 0;
        for (int64_t row = 0; row < count; ++row) {
            T* const to = data + (first + row) * stride;
#pragma omp simd reduction(max : largest)
            for (int64_t c = 0; c < size; ++c) {
                to[c] = from_float<T>(from[row * size + c]);
                largest = std::max(largest, magnitude_bits(to_float(to[c])));
            }
        }
        return largest;
    }
};

/// Where the heads of a matrix of `width` columns lie: slot s holds columns s*D..s*D+D-1.
template <class T>
struct Heads {
    T* data;
    int64_t width;
    AttentionShape shape;

    HeadView<T> at(int64_t sequence, int64_t slot) const {
        return {data + sequence * shape.sequence * width + slot * shape.head_size, width, shape.head_size};
    }
    HeadView<T> query(int64_t sequence, int64_t head) const { return at(sequence, head); }
    HeadView<T> key(int64_t sequence, int64_t kv_head) const { return at(sequence, shape.heads + kv_head); }
    HeadView<T> value(int64_t sequence, int64_t kv_head) const {
        return at(sequence, shape.heads + shape.kv_heads + kv_head);
    }
};

/// A thread's buffers. Row matrices hold a tile of queries, key matrices the whole sequence.
struct Buffers {
    float *keys, *values, *dkeys, *dvalues;    // (T, D)
    float *queries, *dqueries, *outs, *douts;  // (tile, D)
    float *scores, *dscores;                   // (tile, T)

    static int64_t floats(const AttentionShape& s) {
        return 4 * s.sequence * s.head_size + 4 * kTile * s.head_size + 2 * kTile * s.sequence;
    }
    Buffers(float* at, const AttentionShape& s) {
        for (float** keyed : {&keys, &values, &dkeys, &dvalues}) {
            *keyed = at;
            at += s.sequence * s.head_size;
        }
        for (float** row : {&queries, &dqueries, &outs, &douts}) {
            *row = at;
            at += kTile * s.head_size;
        }
        scores = at;
        dscores = at + kTile * s.sequence;
    }
};

/// Every thread's buffers, carved from the op's scratch.
struct ThreadBuffers {
    float* first;
    int64_t stride;
    AttentionShape shape;

    ThreadBuffers(Context& ctx, const char* op, const AttentionShape& s)
        : stride(int64_t(Scratch::rounded(Buffers::floats(s) * sizeof(float)) / sizeof(float))), shape(s) {
        first = Scratch(ctx, op).take<float>(thread_count() * stride);
    }
    Buffers mine() const { return Buffers(first + thread_index() * stride, shape); }
};

struct SoftmaxRow {
    float largest, sum;
};

/// exp(s - max) in place of the row's `valid` scores, and 0 in the masked rest. Not yet divided by the sum.
SoftmaxRow softmax_row(float* s, int64_t valid, int64_t width) {
    float largest = -std::numeric_limits<float>::infinity(), sum = 0.0f;
#pragma omp simd reduction(max : largest)
    for (int64_t k = 0; k < valid; ++k) largest = std::max(largest, s[k]);
#pragma omp simd reduction(+ : sum)
    for (int64_t k = 0; k < valid; ++k) {
        s[k] = vector_exp(s[k] - largest);
        sum += s[k];
    }
    std::fill(s + valid, s + width, 0.0f);
    return {largest, sum};
}

template <class T>
uint32_t forward_head(const AttentionShape& shape, HeadView<T> out, float* lse, HeadView<const T> query,
                      HeadView<const T> key, HeadView<const T> value, const Buffers& buffers) {
    const int64_t size = shape.head_size;
    const float scale = 1.0f / std::sqrt(float(size));
    uint32_t largest = 0;
    key.load(0, shape.sequence, buffers.keys);
    value.load(0, shape.sequence, buffers.values);
    for (int64_t first = 0; first < shape.sequence; first += kTile) {
        const int64_t rows = std::min(kTile, shape.sequence - first), end = first + rows;
        query.load(first, rows, buffers.queries);
        product_abt(rows, end, size, scale, buffers.queries, size, buffers.keys, size, 0.0f, buffers.scores,
                    end);
        float inverse[kTile];
        for (int64_t row = 0; row < rows; ++row) {
            const SoftmaxRow softmax = softmax_row(buffers.scores + row * end, first + row + 1, end);
            lse[first + row] = softmax.largest + std::log(softmax.sum);
            inverse[row] = 1.0f / softmax.sum;
        }
        product_ab(rows, size, end, 1.0f, buffers.scores, end, buffers.values, size, 0.0f, buffers.outs,
                   size);
        for (int64_t row = 0; row < rows; ++row)
            for (int64_t c = 0; c < size; ++c) buffers.outs[row * size + c] *= inverse[row];
        largest = std::max(largest, out.store(first, rows, buffers.outs));
    }
    return largest;
}

float dot(const float* a, const float* b, int64_t count) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
    return sum;
}

/// Scores become P = exp(s - lse), and dP in dscores becomes P * (dP - delta); 0 where masked.
void backward_row(float* s, float* ds, float lse, float delta, int64_t valid, int64_t width) {
#pragma omp simd
    for (int64_t k = 0; k < valid; ++k) {
        s[k] = vector_exp(s[k] - lse);
        ds[k] = s[k] * (ds[k] - delta);
    }
    std::fill(s + valid, s + width, 0.0f);
    std::fill(ds + valid, ds + width, 0.0f);
}

/// One query head: stores its dQ and adds to the dK and dV of the group, whose keys and values are loaded.
template <class T>
void backward_head(const AttentionShape& shape, HeadView<T> dquery, HeadView<const T> dout,
                   HeadView<const T> out, const float* lse, HeadView<const T> query, const Buffers& b) {
    const int64_t size = shape.head_size;
    const float scale = 1.0f / std::sqrt(float(size));
    for (int64_t first = 0; first < shape.sequence; first += kTile) {
        const int64_t rows = std::min(kTile, shape.sequence - first), end = first + rows;
        query.load(first, rows, b.queries);
        out.load(first, rows, b.outs);
        dout.load(first, rows, b.douts);
        product_abt(rows, end, size, scale, b.queries, size, b.keys, size, 0.0f, b.scores, end);
        product_abt(rows, end, size, 1.0f, b.douts, size, b.values, size, 0.0f, b.dscores, end);
        for (int64_t row = 0; row < rows; ++row)
            backward_row(b.scores + row * end, b.dscores + row * end, lse[first + row],
                         dot(b.douts + row * size, b.outs + row * size, size), first + row + 1, end);
        product_atb(end, size, rows, 1.0f, b.scores, end, b.douts, size, 1.0f, b.dvalues, size);
        product_atb(end, size, rows, scale, b.dscores, end, b.queries, size, 1.0f, b.dkeys, size);
        product_ab(rows, size, end, scale, b.dscores, end, b.keys, size, 0.0f, b.dqueries, size);
        dquery.store(first, rows, b.dqueries);
    }
}

void require_shapes(const char* qkv_name, Tensor qkv, const char* out_name, Tensor out, Tensor lse,
                    const AttentionShape& s) {
    require(s.kv_heads > 0 && s.heads % s.kv_heads == 0, "attention: ", s.heads, " heads in ", s.kv_heads,
            " groups");
    require_shape(qkv_name, qkv, s.tokens(), s.qkv_width());
    require_shape(out_name, out, s.tokens(), s.out_width());
    require_shape("attention: lse", lse, s.heads * s.batch, s.sequence);
}

}  // namespace

void attention_forward(Context& ctx, Tensor out, Tensor lse, Tensor qkv, AttentionShape shape, Amax* amax) {
    require_shapes("attention_forward: qkv", qkv, "attention_forward: out", out, lse, shape);
    clear_amax(amax);
    openblas_set_num_threads(1);
    const ThreadBuffers buffers(ctx, "attention_forward", shape);
    float* const lses = lse.as<float>();
    for_float_type(qkv.dtype, [&](auto type) {
        using T = decltype(type);
        const Heads<const T> in{qkv.as<T>(), shape.qkv_width(), shape};
        const Heads<T> to{out.as<T>(), shape.out_width(), shape};
        parallel_for(shape.batch * shape.heads, [&](int64_t piece) {
            const int64_t sequence = piece / shape.heads, head = piece % shape.heads;
            const int64_t kv_head = head / (shape.heads / shape.kv_heads);
            raise_amax(amax, forward_head(shape, to.query(sequence, head), lses + piece * shape.sequence,
                                          in.query(sequence, head), in.key(sequence, kv_head),
                                          in.value(sequence, kv_head), buffers.mine()));
        });
    });
}

void attention_backward(Context& ctx, Tensor dqkv, Tensor dout, Tensor out, Tensor lse, Tensor qkv,
                        AttentionShape shape) {
    require_shapes("attention_backward: qkv", qkv, "attention_backward: out", out, lse, shape);
    require_shapes("attention_backward: dqkv", dqkv, "attention_backward: dout", dout, lse, shape);
    openblas_set_num_threads(1);
    const ThreadBuffers buffers(ctx, "attention_backward", shape);
    const float* const lses = lse.as<float>();
    for_float_type(qkv.dtype, [&](auto type) {
        using T = decltype(type);
        const Heads<T> to{dqkv.as<T>(), shape.qkv_width(), shape};
        const Heads<const T> in{qkv.as<T>(), shape.qkv_width(), shape};
        const Heads<const T> outs{out.as<T>(), shape.out_width(), shape};
        const Heads<const T> douts{dout.as<T>(), shape.out_width(), shape};
        // A piece is a group of query heads, so that one thread sums its dK and dV, head after head.
        parallel_for(shape.batch * shape.kv_heads, [&](int64_t piece) {
            const int64_t sequence = piece / shape.kv_heads, kv_head = piece % shape.kv_heads;
            const int64_t group = shape.heads / shape.kv_heads, size = shape.sequence * shape.head_size;
            const Buffers b = buffers.mine();
            in.key(sequence, kv_head).load(0, shape.sequence, b.keys);
            in.value(sequence, kv_head).load(0, shape.sequence, b.values);
            std::fill(b.dkeys, b.dkeys + size, 0.0f);
            std::fill(b.dvalues, b.dvalues + size, 0.0f);
            for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
                backward_head(
                    shape, to.query(sequence, head), douts.query(sequence, head), outs.query(sequence, head),
                    lses + (sequence * shape.heads + head) * shape.sequence, in.query(sequence, head), b);
            to.key(sequence, kv_head).store(0, shape.sequence, b.dkeys);
            to.value(sequence, kv_head).store(0, shape.sequence, b.dvalues);
        });
    });
}

size_t attention_scratch(AttentionShape shape) {
    return size_t(thread_count()) * Scratch::rounded(Buffers::floats(shape) * sizeof(float));
}

}  // namespace q2::cpu
