// Conversion between float32 and bfloat16, and the search for values that are not finite.
#include <algorithm>
#include <atomic>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"

namespace q2::cpu {
namespace {

constexpr int64_t kChunk = 1 << 14;

/// f(first, last) over chunks of a tensor's elements.
template <class F>
void parallel_elements(int64_t size, F f) {
    parallel_for((size + kChunk - 1) / kChunk,
                 [&](int64_t chunk) { f(chunk * kChunk, std::min(size, (chunk + 1) * kChunk)); });
}

}  // namespace

void cast(Context&, Tensor out, Tensor in) {
    require_shape("cast: out", out, in.rows, in.cols);
    for_float_type(out.dtype, [&](auto to_type) {
        using To = decltype(to_type);
        for_float_type(in.dtype, [&](auto from_type) {
            To* const to = out.as<To>();
            const auto* const from = in.as<decltype(from_type)>();
            parallel_elements(in.size(), [=](int64_t first, int64_t last) {
                for (int64_t i = first; i < last; ++i) to[i] = from_float<To>(to_float(from[i]));
            });
        });
    });
}

int64_t count_non_finite(Context&, Tensor x) {
    std::atomic<int64_t> total = 0;
    for_float_type(x.dtype, [&](auto type) {
        const auto* const values = x.as<decltype(type)>();
        parallel_elements(x.size(), [&total, values](int64_t first, int64_t last) {
            int64_t count = 0;
            for (int64_t i = first; i < last; ++i)
                count += magnitude_bits(to_float(values[i])) >= 0x7f800000u;
            total += count;
        });
    });
    return total;
}

}  // namespace q2::cpu
