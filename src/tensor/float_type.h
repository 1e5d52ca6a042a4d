// From a tensor's element type at run time to a template argument: the one place for that choice.
#pragma once

#include "tensor/tensor.h"

namespace q2 {

/// Calls f with a value of the element type; throws Exit::internal where that is neither float32 nor
/// bfloat16.
template <class F>
void for_float_type(Dtype dtype, F f) {
    switch (dtype) {
        case Dtype::f32:
            return f(float{});
        case Dtype::bf16:
            return f(Bf16{});
        default:
            fail(Exit::internal, "a float32 or bfloat16 tensor is needed, not ", name_of(dtype));
    }
}

}  // namespace q2
