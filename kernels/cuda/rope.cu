// Rotary embedding, rotate-half form (Su et al., arXiv 2104.09864; Hugging Face's layout), in place on Q and
// K: (x[i], x[i + D/2]) turns by the angle whose cosine and sine table (T, D) holds at i and i + D/2.
#include "kernels/cuda/elementwise.h"

namespace q2::cuda {
namespace {

constexpr int kPairs = 4;  // pairs a thread turns at a time: D/2 is a multiple of 4

/// A block turns one token.
template <class T>
__global__ void rope_kernel(T* qkv, const float* table, AttentionShape shape, float direction) {
    const int half = int(shape.head_size) / 2, groups = half / kPairs;
    const int count = int(shape.heads + shape.kv_heads) * groups;
    const float* angles = table + blockIdx.x % uint32_t(shape.sequence) * shape.head_size;
    T* token = qkv + blockIdx.x * shape.qkv_width();
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        const int pair = i % groups * kPairs;
        T* x = token + i / groups * shape.head_size + pair;
        float cosine[kPairs], sine[kPairs], a[kPairs], b[kPairs], turned_a[kPairs], turned_b[kPairs];
        load<kPairs>(angles + pair, cosine);
        load<kPairs>(angles + pair + half, sine);
        load<kPairs>(x, a);
        load<kPairs>(x + half, b);
        for (int j = 0; j < kPairs; ++j) {
            turned_a[j] = a[j] * cosine[j] - direction * b[j] * sine[j];
            turned_b[j] = b[j] * cosine[j] + direction * a[j] * sine[j];
        }
        store<kPairs>(x, turned_a);
        store<kPairs>(x + half, turned_b);
    }
}

}  // namespace

void rope(Context& ctx, Tensor qkv, Tensor table, AttentionShape shape, Direction direction) {
    require(qkv.rows == shape.tokens() && qkv.cols == shape.qkv_width(), "rope: qkv is (", qkv.rows, ", ",
            qkv.cols, "), not (", shape.tokens(), ", ", shape.qkv_width(), ")");
    require(shape.head_size % (2 * kPairs) == 0, "rope: head size ", shape.head_size,
            " is not a multiple of ", 2 * kPairs);
    require(table.rows >= shape.sequence && table.cols == shape.head_size, "rope: the table is (", table.rows,
            ", ", table.cols, ") for ", shape.sequence, " positions of ", shape.head_size);
    for_float_type(qkv.dtype, [&](auto type) {
        using T = decltype(type);
        Launch{stream_of(ctx), blocks_for(qkv.rows, 1), kThreads}(
            rope_kernel<T>, qkv.as<T>(), table.as<float>(), shape,
            direction == Direction::forward ? 1.0f : -1.0f);
    });
}

}  // namespace q2::cuda
