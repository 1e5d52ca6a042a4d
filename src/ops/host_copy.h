// A tensor's values on the host, for what is looked at there.
#pragma once

#include <algorithm>
#include <vector>

#include "ops/ops.h"

namespace q2 {

/// Of a float32 or bfloat16 tensor, in its order.
inline std::vector<float> host_floats(Context& ctx, const Tensor& x) {
    std::vector<float> values(size_t(x.size()));
    if (x.dtype == Dtype::f32) {
        ctx.ops->download(ctx, values.data(), x.data, x.bytes());
        return values;
    }
    std::vector<Bf16> raw(values.size());
    require(x.dtype == Dtype::bf16, "a ", name_of(x.dtype), " tensor was read as floats");
    ctx.ops->download(ctx, raw.data(), x.data, x.bytes());
    std::transform(raw.begin(), raw.end(), values.begin(), [](Bf16 v) { return to_float(v); });
    return values;
}

}  // namespace q2
