// SwiGLU: out = silu(gate) * up, silu(x) = x * sigmoid(x); (N, 2M) holds gate, then up (Shazeer,
// arXiv 2002.05202).
#include "kernels/cuda/elementwise.h"

namespace q2::cuda {
namespace {

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

template <int W, class T>
__global__ void forward_kernel(T* out, const T* gate_up, int64_t rows, int64_t groups, uint32_t* amax) {
    uint32_t largest = 0;
    strided_for(rows * groups, [&](int64_t i) {
        const int64_t row = i / groups, col = i % groups * W, width = groups * W;
        float gate[W], up[W], y[W];
        load<W>(gate_up + row * 2 * width + col, gate);
        load<W>(gate_up + row * 2 * width + width + col, up);
        for (int j = 0; j < W; ++j) {
            y[j] = rounded_to<T>(gate[j] * sigmoid(gate[j]) * up[j]);
            largest = max(largest, magnitude_bits(y[j]));
        }
        store<W>(out + row * width + col, y);
    });
    if (amax) block_amax_into(amax, largest);
}

template <int W, class T>
__global__ void backward_kernel(T* dgate_up, const T* dout, const T* gate_up, int64_t rows, int64_t groups) {
    strided_for(rows * groups, [&](int64_t i) {
        const int64_t row = i / groups, col = i % groups * W, width = groups * W;
        float gate[W], up[W], d[W];
        load<W>(gate_up + row * 2 * width + col, gate);
        load<W>(gate_up + row * 2 * width + width + col, up);
        load<W>(dout + row * width + col, d);
        for (int j = 0; j < W; ++j) {
            const float s = sigmoid(gate[j]), g = gate[j];
            gate[j] = d[j] * up[j] * s * (1.0f + g * (1.0f - s));
            up[j] = d[j] * g * s;
        }
        store<W>(dgate_up + row * 2 * width + col, gate);
        store<W>(dgate_up + row * 2 * width + width + col, up);
    });
}

void check_shapes(const char* op, Tensor half, Tensor gate_up) {
    require(half.rows == gate_up.rows && 2 * half.cols == gate_up.cols && half.dtype == gate_up.dtype, op,
            ": (", half.rows, ", ", half.cols, ") ", name_of(half.dtype), " beside (", gate_up.rows, ", ",
            gate_up.cols, ") ", name_of(gate_up.dtype));
}

}  // namespace

void swiglu_forward(Context& ctx, Tensor out, Tensor gate_up, Amax* amax) {
    check_shapes("swiglu_forward", out, gate_up);
    for_float_type(out.dtype, [&](auto type) {
        for_width(rows_are_wide({out, gate_up}), [&](auto width) {
            using T = decltype(type);
            strided_launch(ctx, out.size() / width)(forward_kernel<width, T>, out.as<T>(), gate_up.as<T>(),
                                                    out.rows, out.cols / width, cleared(ctx, amax));
        });
    });
}

void swiglu_backward(Context& ctx, Tensor dgate_up, Tensor dout, Tensor gate_up) {
    check_shapes("swiglu_backward", dout, gate_up);
    check_shapes("swiglu_backward", dout, dgate_up);
    for_float_type(dout.dtype, [&](auto type) {
        for_width(rows_are_wide({dgate_up, dout, gate_up}), [&](auto width) {
            using T = decltype(type);
            strided_launch(ctx, dout.size() / width)(backward_kernel<width, T>, dgate_up.as<T>(),
                                                     dout.as<T>(), gate_up.as<T>(), dout.rows,
                                                     dout.cols / width);
        });
    });
}

}  // namespace q2::cuda
