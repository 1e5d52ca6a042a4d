// SwiGLU: out = silu(gate) * up, silu(x) = x * sigmoid(x); (N, 2M) holds gate, then up (Shazeer,
// arXiv 2002.05202).
#include "kernels/cuda/elementwise.h"

namespace q2::cuda {
namespace {

/// Within a few units of float32's last place: the exact functions would take longer than the memory does.
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

/// Offsets of W neighbours in a row: of the product, of the gate and of up. f(product, gate, up) for a
/// thread's share of row blockIdx.x.
template <int W, class F>
__device__ __forceinline__ void for_row(int64_t width, F f) {
    const int64_t row = blockIdx.x;
    for (int64_t col = threadIdx.x * W; col < width; col += blockDim.x * W)
        f(row * width + col, row * 2 * width + col, row * 2 * width + width + col);
}

template <int W, class T>
__global__ void forward_kernel(T* out, const T* gate_up, int64_t width, uint32_t* amax) {
    uint32_t largest = 0;
    for_row<W>(width, [&](int64_t to, int64_t gate_at, int64_t up_at) {
        float gate[W], up[W], y[W];
        load<W>(gate_up + gate_at, gate);
        load<W>(gate_up + up_at, up);
        for (int j = 0; j < W; ++j) {
            y[j] = rounded_to<T>(gate[j] * sigmoid(gate[j]) * up[j]);
            largest = max(largest, magnitude_bits(y[j]));
        }
        store<W>(out + to, y);
    });
    if (amax) block_amax_into(amax, largest);
}

template <int W, class T>
__global__ void backward_kernel(T* dgate_up, const T* dout, const T* gate_up, int64_t width) {
    for_row<W>(width, [&](int64_t from, int64_t gate_at, int64_t up_at) {
        float gate[W], up[W], d[W];
        load<W>(gate_up + gate_at, gate);
        load<W>(gate_up + up_at, up);
        load<W>(dout + from, d);
        for (int j = 0; j < W; ++j) {
            const float s = sigmoid(gate[j]), g = gate[j];
            gate[j] = d[j] * up[j] * s * (1.0f + g * (1.0f - s));
            up[j] = d[j] * g * s;
        }
        store<W>(dgate_up + gate_at, gate);
        store<W>(dgate_up + up_at, up);
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
            Launch{stream_of(ctx), blocks_for(out.rows, 1), kThreads}(
                forward_kernel<width, T>, out.as<T>(), gate_up.as<T>(), out.cols, cleared(ctx, amax));
        });
    });
}

void swiglu_backward(Context& ctx, Tensor dgate_up, Tensor dout, Tensor gate_up) {
    check_shapes("swiglu_backward", dout, gate_up);
    check_shapes("swiglu_backward", dout, dgate_up);
    for_float_type(dout.dtype, [&](auto type) {
        for_width(rows_are_wide({dgate_up, dout, gate_up}), [&](auto width) {
            using T = decltype(type);
            Launch{stream_of(ctx), blocks_for(dout.rows, 1), kThreads}(
                backward_kernel<width, T>, dgate_up.as<T>(), dout.as<T>(), gate_up.as<T>(), dout.cols);
        });
    });
}

}  // namespace q2::cuda
