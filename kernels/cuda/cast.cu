// out = in, between float32 and bfloat16; and how many elements are not finite.
#include "kernels/cuda/elementwise.h"

namespace q2::cuda {
namespace {

template <int W, class Out, class In>
__global__ void cast_kernel(Out* out, const In* in, int64_t groups) {
    strided_for(groups, [&](int64_t i) {
        float x[W];
        load<W>(in + i * W, x);
        store<W>(out + i * W, x);
    });
}

template <class T>
__global__ void count_kernel(unsigned long long* count, const T* x, int64_t size) {
    unsigned long long bad = 0;
    strided_for(size, [&](int64_t i) { bad += magnitude_bits(to_float(x[i])) >= 0x7f800000u; });
    bad = block_reduce(bad, Sum{});
    if (threadIdx.x == 0 && bad) atomicAdd(count, bad);
}

}  // namespace

void cast(Context& ctx, Tensor out, Tensor in) {
    require(out.size() == in.size(), "cast: ", in.size(), " elements into ", out.size());
    const Tensor flat_out{out.data, out.dtype, 1, out.size()}, flat_in{in.data, in.dtype, 1, in.size()};
    for_float_type(out.dtype, [&](auto to) {
        for_float_type(in.dtype, [&](auto from) {
            for_width(rows_are_wide({flat_out, flat_in}), [&](auto width) {
                const int64_t groups = out.size() / width;
                strided_launch(ctx, groups)(cast_kernel<width, decltype(to), decltype(from)>,
                                            out.as<decltype(to)>(), in.as<decltype(from)>(), groups);
            });
        });
    });
}

int64_t count_non_finite(Context& ctx, Tensor x) {
    unsigned long long* count = &state_of(ctx).words()->count;
    zero(ctx, count, sizeof *count);
    for_float_type(x.dtype, [&](auto type) {
        strided_launch(ctx, x.size())(count_kernel<decltype(type)>, count, x.as<decltype(type)>(), x.size());
    });
    unsigned long long found = 0;
    download(ctx, &found, count, sizeof found);
    return int64_t(found);
}

}  // namespace q2::cuda
