// SwiGLU (Shazeer, arXiv 2002.05202): out = silu(gate) * up, silu(g) = g * sigmoid(g).
// Backward: dup = dout * silu(g), dgate = dout * up * sigmoid(g) * (1 + g * (1 - sigmoid(g))).
#include <algorithm>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace q2::cpu {
namespace {

inline float sigmoid(float x) { return 1.0f / (1.0f + vector_exp(-x)); }

template <class T>
uint32_t forward_row(T* out, const T* gate, const T* up, int64_t width) {
    uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t c = 0; c < width; ++c) {
        const float g = to_float(gate[c]);
        out[c] = from_float<T>(g * sigmoid(g) * to_float(up[c]));
        largest = std::max(largest, magnitude_bits(to_float(out[c])));
    }
    return largest;
}

/// dgate and dup may be gate and up themselves.
template <class T>
void backward_row(T* dgate, T* dup, const T* dout, const T* gate, const T* up, int64_t width) {
#pragma omp simd
    for (int64_t c = 0; c < width; ++c) {
        const float g = to_float(gate[c]), u = to_float(up[c]), d = to_float(dout[c]);
        const float s = sigmoid(g);
        dgate[c] = from_float<T>(d * u * (s * (1.0f + g * (1.0f - s))));
        dup[c] = from_float<T>(d * (g * s));
    }
}

}  // namespace

void swiglu_forward(Context&, Tensor out, Tensor gate_up, Amax* amax) {
    require_shape("swiglu_forward: gate_up", gate_up, out.rows, 2 * out.cols);
    clear_amax(amax);
    const int64_t width = out.cols;
    for_float_type(out.dtype, [&](auto type) {
        using T = decltype(type);
        T* const to = out.as<T>();
        const T* const from = gate_up.as<T>();
        parallel_rows(out.rows, [=](int64_t first, int64_t last) {
            uint32_t largest = 0;
            for (int64_t row = first; row < last; ++row) {
                const T* const gate = from + row * 2 * width;
                largest = std::max(largest, forward_row(to + row * width, gate, gate + width, width));
            }
            raise_amax(amax, largest);
        });
    });
}

void swiglu_backward(Context&, Tensor dgate_up, Tensor dout, Tensor gate_up) {
    require_shape("swiglu_backward: gate_up", gate_up, dout.rows, 2 * dout.cols);
    require_shape("swiglu_backward: dgate_up", dgate_up, dout.rows, 2 * dout.cols);
    const int64_t width = dout.cols;
    for_float_type(dout.dtype, [&](auto type) {
        using T = decltype(type);
        T* const to = dgate_up.as<T>();
        const T* const from = gate_up.as<T>();
        const T* const d = dout.as<T>();
        parallel_rows(dout.rows, [=](int64_t first, int64_t last) {
            for (int64_t row = first; row < last; ++row) {
                const int64_t at = row * 2 * width;
                backward_row(to + at, to + at + width, d + row * width, from + at, from + at + width, width);
            }
        });
    });
}

}  // namespace q2::cpu
