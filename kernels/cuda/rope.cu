// Rotary embedding, rotate-half form (Su et al., arXiv 2104.09864; Hugging Face's layout), in place on Q and
// K: (x[i], x[i + D/2]) turns by the angle whose cosine and sine table (T, D) holds at i and i + D/2.
#include "kernels/cuda/elementwise.h"

namespace q2::cuda {
namespace {

constexpr int kPairs = 4;  // pairs a thread turns: D/2 is a multiple of 4

template <class T>
__global__ void rope_kernel(T* qkv, const float* table, int64_t tokens, AttentionShape shape,
                            float direction) {
    const int64_t half = shape.head_size / 2, groups = half / kPairs;
    const int64_t turned_heads = shape.heads + shape.kv_heads;
    strided_for(tokens * turned_heads * groups, [&](int64_t i) {
        const int64_t pair = i % groups * kPairs, head = i / groups % turned_heads;
        const int64_t token = i / groups / turned_heads;
        const float* angles = table + token % shape.sequence * shape.head_size + pair;
        T* x = qkv + token * shape.qkv_width() + head * shape.head_size + pair;
        float cosine[kPairs], sine[kPairs], a[kPairs], b[kPairs], turned_a[kPairs], turned_b[kPairs];
        load<kPairs>(angles, cosine);
        load<kPairs>(angles + half, sine);
        load<kPairs>(x, a);
        load<kPairs>(x + half, b);
        for (int j = 0; j < kPairs; ++j) {
            turned_a[j] = a[j] * cosine[j] - direction * b[j] * sine[j];
            turned_b[j] = b[j] * cosine[j] + direction * a[j] * sine[j];
        }
        store<kPairs>(x, turned_a);
        store<kPairs>(x + half, turned_b);
    });
}

}  // namespace

void rope(Context& ctx, Tensor qkv, Tensor table, AttentionShape shape, Direction direction) {
    require(qkv.rows == shape.tokens() && qkv.cols == shape.qkv_width(), "rope: qkv is (", qkv.rows, ", ",
            qkv.cols, "), not (", shape.tokens(), ", ", shape.qkv_width(), ")");
    require(shape.head_size % (2 * kPairs) == 0, "rope: head size ", shape.head_size,
            " is not a multiple of ", 2 * kPairs);
    require(table.rows >= shape.sequence && table.cols == shape.head_size, "rope: the table is (", table.rows,
            ", ", table.cols, ") for ", shape.sequence, " positions of ", shape.head_size);
    const int64_t groups = shape.tokens() * (shape.heads + shape.kv_heads) * shape.head_size / (2 * kPairs);
    for_float_type(qkv.dtype, [&](auto type) {
        using T = decltype(type);
        strided_launch(ctx, groups)(rope_kernel<T>, qkv.as<T>(), table.as<float>(), qkv.rows, shape,
                                    direction == Direction::forward ? 1.0f : -1.0f);
    });
}

}  // namespace q2::cuda
