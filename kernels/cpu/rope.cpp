// Rotary embedding, rotate-half (Su et al., arXiv 2104.09864; Hugging Face's order of the halves): in each
// head of Q and K, (x1, x2) = (x1 cos - x2 sin, x2 cos + x1 sin) at the row's position. Backward is the
// transpose: the angle's sign turns.
#include "kernels/cpu/checks.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"

namespace q2::cpu {
namespace {

template <class T>
void rotate_head(T* x, const float* cosines, const float* sines, float sign, int64_t half) {
#pragma omp simd
    for (int64_t i = 0; i < half; ++i) {
        const float x1 = to_float(x[i]), x2 = to_float(x[half + i]);
        const float sine = sign * sines[i];
        x[i] = from_float<T>(x1 * cosines[i] - x2 * sine);
        x[half + i] = from_float<T>(x2 * cosines[i] + x1 * sine);
    }
}

}  // namespace

void rope(Context&, Tensor qkv, Tensor table, AttentionShape shape, Direction direction) {
    require(shape.head_size % 2 == 0, "rope: head size ", shape.head_size, " is odd");
    require_shape("rope: qkv", qkv, shape.tokens(), shape.qkv_width());
    require_shape("rope: table", table, shape.sequence, shape.head_size);
    const float sign = direction == Direction::forward ? 1.0f : -1.0f;
    const float* angles = table.as<float>();
    for_float_type(qkv.dtype, [&](auto type) {
        auto* x = qkv.as<decltype(type)>();
        parallel_rows(qkv.rows, [=](int64_t first, int64_t last) {
            const int64_t size = shape.head_size, half = size / 2;
            for (int64_t row = first; row < last; ++row) {
                const float* cosines = angles + row % shape.sequence * size;
                for (int64_t head = 0; head < shape.heads + shape.kv_heads; ++head)
                    rotate_head(x + row * shape.qkv_width() + head * size, cosines, cosines + half, sign,
                                half);
            }
        });
    });
}

}  // namespace q2::cpu
