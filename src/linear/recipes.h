// Precision recipes by name and as JSON (docs/NUMERICS.md section 7). A recipe is data: an ablation edits a
// field of a built-in one, {"base": "quartet2", "dgrad": {"a": {"round": "stochastic"}}}.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "ops/quant_spec.h"

namespace q2 {

/// bf16, quartet2, quartet2_onepass, quartet2_plus, nvidia, four_over_six, tetrajet_v2.
const std::vector<Recipe>& builtin_recipes();
/// Throws Exit::config with the known names; `origin` begins the message.
const Recipe& find_recipe(std::string_view name, std::string_view origin = "recipe");

/// A name; or an object, with "base" edits of a built-in recipe, else of one that keeps every operand.
/// Settings that a rounding does not use are refused where given and return to their defaults where
/// inherited, so equal recipes compare equal. `origin` begins the messages (Exit::config).
Recipe recipe_from_json(const nlohmann::json& json, const std::string& origin = "recipe");
/// The whole recipe, with the settings that its roundings use.
nlohmann::ordered_json recipe_to_json(const Recipe& recipe);

/// The recipe's part of docs/CONFIG.md.
std::string recipe_markdown();

/// What a GEMM's inner dimension must be a multiple of: its blocks, rotation and correction groups; 1 if
/// nothing is quantised.
int64_t inner_multiple(const GemmSpec& gemm);

}  // namespace q2
