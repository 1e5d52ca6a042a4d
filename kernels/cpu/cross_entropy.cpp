// Softmax cross-entropy and its gradient in place of the logits: loss = log sum exp(l - max) + (max - l_t),
// which loses nothing to a large maximum. A NaN or infinite logit makes the loss NaN.
#include <algorithm>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace q2::cpu {
namespace {

template <class T>
float row_max(const T* logits, int64_t vocab) {
    float largest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : largest)
    for (int64_t v = 0; v < vocab; ++v) largest = std::max(largest, to_float(logits[v]));
    return largest;
}

/// A NaN that the maximum passed over comes back here.
template <class T>
float exp_sum(const T* logits, float largest, int64_t vocab) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t v = 0; v < vocab; ++v) sum += vector_exp(to_float(logits[v]) - largest);
    return sum;
}

template <class T>
void gradient_row(T* logits, float largest, float sum, int32_t target, float scale, int64_t vocab) {
    const float at_target = vector_exp(to_float(logits[target]) - largest) / sum - 1.0f;
#pragma omp simd
    for (int64_t v = 0; v < vocab; ++v)
        logits[v] = from_float<T>(scale * (vector_exp(to_float(logits[v]) - largest) / sum));
    logits[target] = from_float<T>(scale * at_target);
}

template <class T>
float loss_row(T* logits, int32_t target, float scale, bool want_gradient, int64_t vocab) {
    if (target < 0) {
        if (want_gradient) std::fill(logits, logits + vocab, from_float<T>(0.0f));
        return 0.0f;
    }
    const float largest = row_max(logits, vocab);
    const float sum = exp_sum(logits, largest, vocab);
    const float loss = std::log(sum) + (largest - to_float(logits[target]));
    if (want_gradient) gradient_row(logits, largest, sum, target, scale, vocab);
    return loss;
}

}  // namespace

void cross_entropy(Context&, Tensor losses, Tensor logits, Tensor targets, float gradient_scale,
                   bool want_gradient) {
    require_shape("cross_entropy: losses", losses, logits.rows, 1);
    require_shape("cross_entropy: targets", targets, logits.rows, 1);
    require_ids("cross_entropy: target", targets, std::numeric_limits<int32_t>::min(), logits.cols);
    float* const loss = losses.as<float>();
    const int32_t* const target = targets.as<int32_t>();
    for_float_type(logits.dtype, [&](auto type) {
        auto* const logit = logits.as<decltype(type)>();
        const int64_t vocab = logits.cols;
        parallel_rows(logits.rows, [=](int64_t first, int64_t last) {
            for (int64_t row = first; row < last; ++row)
                loss[row] = loss_row(logit + row * vocab, target[row], gradient_scale, want_gradient, vocab);
        });
    });
}

void add_loss(Context&, float* total, Tensor losses, float scale) {
    const float* loss = losses.as<float>();
    double sum = 0.0;
    for (int64_t n = 0; n < losses.size(); ++n) sum += loss[n];
    *total = float(*total + scale * sum);
}

}  // namespace q2::cpu
