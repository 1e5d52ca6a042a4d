// What the attention kernels of both directions are told, and how their tiles are chosen.
#pragma once

#include "kernels/cuda/device/attention_tiles.h"
#include "kernels/cuda/device/shared.h"
#include "kernels/cuda/elementwise.h"

namespace q2::cuda {

/// Tensors of attention, T being the activations' type; see ops/ops.h for the shapes.
template <class T>
struct AttentionHeads {
    const T* qkv;
    AttentionShape shape;

    __device__ HeadRows<const T> part(int64_t batch, int64_t slot) const {
        return {qkv + batch * shape.sequence * shape.qkv_width() + slot * shape.head_size, shape.qkv_width(),
                int(shape.head_size)};
    }
    __device__ HeadRows<const T> query(int64_t batch, int64_t head) const { return part(batch, head); }
    __device__ HeadRows<const T> key(int64_t batch, int64_t kv_head) const {
        return part(batch, shape.heads + kv_head);
    }
    __device__ HeadRows<const T> value(int64_t batch, int64_t kv_head) const {
        return part(batch, shape.heads + shape.kv_heads + kv_head);
    }
    __device__ int64_t kv_head_of(int64_t head) const { return head / (shape.heads / shape.kv_heads); }
    __device__ float scale() const { return 1.0f / sqrtf(float(shape.head_size)); }
};

/// The rows of one head of an (N, heads D) tensor.
template <class T>
__device__ HeadRows<T> head_rows(T* data, const AttentionShape& shape, int64_t batch, int64_t head) {
    const int64_t width = shape.heads * shape.head_size;
    return {data + batch * shape.sequence * width + head * shape.head_size, width, int(shape.head_size)};
}

template <int D, int R>
struct TileSize {
    static constexpr int kD = D, kR = R;
    using Shape = Tiles<D, R>;
};

inline void check_attention(const char* op, const AttentionShape& s, Tensor qkv) {
    require(s.kv_heads > 0 && s.heads % s.kv_heads == 0, op, ": ", s.heads, " heads do not share ",
            s.kv_heads, " key heads evenly");
    check(s.head_size % 8 == 0 && s.head_size > 0 && s.head_size <= 256, Exit::config, op, ": head size ",
          s.head_size, " is not a multiple of 8 up to 256, which this device's attention needs");
    require(qkv.rows == s.tokens() && qkv.cols == s.qkv_width(), op, ": qkv is (", qkv.rows, ", ", qkv.cols,
            "), not (", s.tokens(), ", ", s.qkv_width(), ")");
}

}  // namespace q2::cuda
