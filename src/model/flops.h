// What training costs in model FLOPs, and what a device could do: the two halves of its utilisation (MFU).
#pragma once

#include <optional>
#include <string>

#include "model/model_config.h"

namespace q2 {

/// Floating-point operations of training on one token (forward and backward): 6 a weight of the blocks and
/// norms, 6 V C for the head, 6 L A T for causal attention of width A, which counts half of its square.
/// Look-ups count nothing.
double training_flops_a_token(const ModelConfig&, int64_t sequence);

/// Dense bfloat16 peak of a GPU by its name, from NVIDIA's datasheets; none if the name is not known.
std::optional<double> peak_flops(const std::string& device);

/// Model FLOPs utilisation, 0 to 1; none on a device whose peak is not known.
std::optional<double> utilisation(const ModelConfig&, int64_t sequence, double tokens_per_s,
                                  const std::string& device);

}  // namespace q2
