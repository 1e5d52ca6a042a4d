// quartet2 bench: how fast a config trains on this machine, and where a step's time goes.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "model/model_config.h"

namespace CLI {
class App;
}

namespace q2 {

/// Floating-point operations of training on one token (forward and backward): 6 a weight of the blocks and
/// norms, 6 V C for the head, 6 L A T for causal attention of width A, which counts half of its square.
/// Look-ups count nothing.
double training_flops_a_token(const ModelConfig&, int64_t sequence);

/// Dense bfloat16 peak of a GPU by its name, from NVIDIA's datasheets; none if the name is not known.
std::optional<double> peak_flops(const std::string& device);

/// Adds the subcommand; its callback sets `run`.
void add_bench(CLI::App& app, std::function<int()>& run);

}  // namespace q2
