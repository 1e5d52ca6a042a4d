// How a layer's quantised backward points: the cosine of dX and of dW, as they were computed, with E W and
// E^T X of the operands as they were before any quantiser, the forward's too. Of evenly spread elements,
// summed in double on the host: nothing is allocated on the device, and what is read is left alone.
#pragma once

#include <vector>

#include "linear/linear.h"

namespace q2 {

/// Evenly spread columns of a layer's input, kept for after the forward, when the input may be gone: N times
/// 32 floats of host memory.
struct InputSample {
    std::vector<float> values;  ///< (N, columns)
    int64_t columns = 0;
};

/// x (N, in) act, as the forward reads it.
InputSample sample_input(Context&, const Tensor& x);

/// Of 32 rows of dx (N, in) act; e (N, out) act. NaN where either gradient is 0 or not finite.
double dgrad_cosine(Context&, const Linear&, const Tensor& dx, const Tensor& e);
/// Of the sample's columns in 64 rows of linear.grad, which must hold this micro-batch's gradient alone.
double wgrad_cosine(Context&, const Linear&, const InputSample&, const Tensor& e);

}  // namespace q2
