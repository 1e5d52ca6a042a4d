// Choosing the next token from a model's logits.
#pragma once

#include <cstdint>
#include <span>

namespace q2 {

struct SamplingOptions {
    double temperature = 1.0;  ///< logits are divided by it; 0: the most likely token, always
    int64_t top_k = 0;         ///< only the k most likely tokens; 0: all
    double top_p = 1.0;        ///< then the fewest of those whose probabilities reach p of their sum; 1: all
};

/// Throws Exit::usage for options out of range.
void check_sampling(const SamplingOptions& options);

/// A token, as decided by the uniform u in [0, 1): the same u takes the same token. Ties in likelihood go to
/// the smaller id. Throws Exit::usage for options out of range and Exit::non_finite for logits that are NaN
/// or +infinity, or all -infinity.
int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, float u);

}  // namespace q2
