// quartet2 analyze: what each way of quantising an operand loses, on synthetic data and on a run's weights,
// and whether a recipe's gradients are right on average.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace CLI {
class App;
}

namespace q2 {

/// {"seed", "columns": [...], "rows": [{"quantiser", "errors": {column: relative squared error}}]}. The
/// columns are N(0,1), Student's t of 5 degrees, N(0,1) with one channel in 64 twenty times larger, and,
/// given a run's folder, its newest checkpoint's weights by layer kind; null where a size does not fit.
nlohmann::ordered_json error_table(uint64_t seed, const std::string& run);

/// {"seed", "tail", "curves": [{"recipe", "n", "dx", "dw"}]}: the study of linear/bias_study.h for the
/// built-in recipes that quantise, over a layer of 128 with data N(0,1) exp(tail N(0,1)).
nlohmann::ordered_json bias_table(uint64_t seed, double tail, int64_t draws);

/// Adds the subcommand; its callback sets `run`.
void add_analyze(CLI::App& app, std::function<int()>& run);

}  // namespace q2
