// Causal attention on Hopper, backward, without float atomics: what both kernels read of a query, then the
// kernels.
#include "kernels/cuda/attention_hopper_backward.h"

namespace q2::cuda {
namespace {

/// A group of D / 8 threads a row: delta = <dout, out>.
template <int D>
__global__ void statistics_kernel(RowStatistics rows, const Bf16* dout, const Bf16* out, const float* lse,
                                  AttentionShape s) {
    constexpr int kGroup = D / 8;
    const int64_t row = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / kGroup;
    if (row >= s.batch * s.heads * rows.pitch) return;  // whole groups: their rows are whole warps'
    const int64_t head_row = row / rows.pitch, position = row % rows.pitch;
    const bool inside = position < s.sequence;
    float sum = 0.0f;
    if (inside) {
        const int64_t token = head_row / s.heads * s.sequence + position;
        const int64_t at = (token * s.heads + head_row % s.heads) * D + threadIdx.x % kGroup * 8;
        float a[8], b[8];
        load<8>(dout + at, a);
        load<8>(out + at, b);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum += a[i] * b[i];
    }
    sum = warp_reduce<kGroup>(sum, Sum{});
    if (threadIdx.x % kGroup != 0) return;
    rows.delta[row] = sum;
    rows.lse_log2[row] = inside ? lse[head_row * s.sequence + position] * kLog2E : INFINITY;
}

size_t statistics_bytes(const AttentionShape& s) {
    return size_t(s.batch * s.heads * RowStatistics::pitch_of(s.sequence)) * sizeof(float);
}

}  // namespace

void hopper_attention_backward(Context& ctx, Tensor dqkv, Tensor dout, Tensor out, Tensor lse, Tensor qkv,
                               const AttentionShape& s) {
    Scratch scratch(ctx, "attention_backward");
    const size_t count = statistics_bytes(s) / sizeof(float);
    float* lse_log2 = scratch.take<float>(int64_t(count));
    float* delta = scratch.take<float>(int64_t(count));
    const BackwardTensors t{dqkv.as<Bf16>(),
                            {lse_log2, delta, RowStatistics::pitch_of(s.sequence)},
                            s,
                            1.0f / std::sqrt(float(s.head_size))};
    const int64_t threads = s.batch * s.heads * t.rows.pitch * (s.head_size / 8);
    const auto statistics = s.head_size == 64 ? statistics_kernel<64> : statistics_kernel<128>;
    Launch{stream_of(ctx), blocks_for(threads, kThreads), kThreads}(statistics, t.rows, dout.as<Bf16>(),
                                                                    out.as<Bf16>(), lse.as<float>(), s);
    hopper_attention_dquery(stream_of(ctx), t, dout, qkv);
    hopper_attention_dkey(stream_of(ctx), t, dout, qkv);
}

size_t hopper_attention_scratch(const AttentionShape& s) { return 2 * Scratch::rounded(statistics_bytes(s)); }

}  // namespace q2::cuda
