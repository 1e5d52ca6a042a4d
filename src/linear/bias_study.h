// Whether a recipe's gradients are right on average: the error of the mean of n backward passes, each with
// its own draws, falls as 1/n without bias and levels off at a bias.
#pragma once

#include "linear/lone_layer.h"

namespace q2 {

/// By n = 1, 2, 4, ...: squared error of the mean of n passes over the exact product's power.
struct BiasCurves {
    std::vector<int64_t> n;
    std::vector<double> dx, dw;
};

/// x (tokens, in), w (out, in), e (tokens, out). Exact are the products of what the recipe's backward starts
/// from: the originals, or their copies where the forward rounds to nearest and the backward rereads that.
BiasCurves study_bias(const Recipe&, LayerSize, const Floats& x, const Floats& w, const Floats& e,
                      int64_t passes, uint64_t seed);

}  // namespace q2
