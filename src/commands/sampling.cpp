#include "commands/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/check.h"

namespace q2 {
namespace {

/// The most likely token, after a look at every logit.
int32_t most_likely(std::span<const float> logits) {
    require(!logits.empty(), "sampling from no logits");
    size_t best = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
        check(!std::isnan(logits[i]) && logits[i] != INFINITY, Exit::non_finite, "logit ", i, " of ",
              logits.size(), " is ", logits[i], ": the model's weights are broken");
        if (logits[i] > logits[best]) best = i;
    }
    check(logits[best] != -INFINITY, Exit::non_finite, "every logit is -infinity");
    return int32_t(best);
}

/// Ids of the k most likely tokens, most likely first.
std::vector<int32_t> ranked(std::span<const float> logits, int64_t top_k) {
    std::vector<int32_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    const int64_t size = int64_t(ids.size()), kept = top_k ? std::min(top_k, size) : size;
    std::partial_sort(ids.begin(), ids.begin() + kept, ids.end(), [&](int32_t a, int32_t b) {
        return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    });
    ids.resize(size_t(kept));
    return ids;
}

/// How many of the leading entries reach the share p of the sum: the nucleus (Holtzman et al., 2020).
size_t nucleus(const std::vector<double>& weights, double p) {
    const double goal = p * std::accumulate(weights.begin(), weights.end(), 0.0);
    double sum = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
        sum += weights[i];
        if (sum >= goal) return i + 1;
    }
    return weights.size();
}

}  // namespace

void check_sampling(const SamplingOptions& o) {
    check(std::isfinite(o.temperature) && o.temperature >= 0, Exit::usage, "temperature is ", o.temperature,
          ": 0 or more is needed");
    check(o.top_k >= 0, Exit::usage, "top_k is ", o.top_k, ": 0 (all) or more is needed");
    check(o.top_p > 0 && o.top_p <= 1, Exit::usage, "top_p is ", o.top_p,
          ": above 0 and at most 1 is needed");
}

int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, float u) {
    check_sampling(options);
    require(u >= 0 && u < 1, "sampling with u = ", u, ", not in [0, 1)");
    const int32_t best = most_likely(logits);
    if (options.temperature == 0) return best;

    const std::vector<int32_t> ids = ranked(logits, options.top_k);
    std::vector<double> weights;
    for (const int32_t id : ids)
        weights.push_back(std::exp((double(logits[id]) - logits[best]) / options.temperature));
    if (options.top_p < 1) weights.resize(nucleus(weights, options.top_p));

    // u is at most 1 - 2^-24, far more below 1 than these sums' rounding: `left` ends within the weights.
    double left = u * std::accumulate(weights.begin(), weights.end(), 0.0);
    size_t i = 0;
    while (i + 1 < weights.size() && left >= weights[i]) left -= weights[i++];
    return ids[i];
}

}  // namespace q2
