#include "linear/recipes.h"

#include <algorithm>

#include "base/json_fields.h"

namespace q2 {
namespace {

QuantSpec nearest(Rule rule, Grid grid = Grid::block) { return {Rounding::nearest, rule, grid}; }

QuantSpec stochastic(Source from = Source::original) {
    return {.rounding = Rounding::stochastic, .from = from};
}

QuantSpec ms_eden(int correction, Range range, Source from = Source::original) {
    return {.rounding = Rounding::ms_eden, .correction = correction, .range = range, .from = from};
}

GemmSpec both(QuantSpec spec) { return {.rotation = {}, .a = spec, .b = spec}; }

/// A backward GEMM whose saved operand is the forward's quantised copy.
GemmSpec from_copy(Rotation rotation, QuantSpec spec) {
    GemmSpec gemm = {rotation, spec, spec};
    gemm.b.from = Source::quantised;
    return gemm;
}

/// The rows of docs/NUMERICS.md section 7. Quartet II: arXiv 2601.22813; the NVIDIA recipe: arXiv 2509.25149;
/// Four Over Six: arXiv 2512.02010.
std::vector<Recipe> make_builtin_recipes() {
    const GemmSpec two_pass = from_copy({.size = 128}, ms_eden(128, Range::two_pass));
    const GemmSpec one_pass = from_copy({.size = 128}, ms_eden(16, Range::post_hoc));
    const GemmSpec twice = from_copy({.size = 128, .rounds = 2}, ms_eden(16, Range::two_pass));
    const GemmSpec short_stochastic = from_copy({.size = 32}, stochastic());
    const QuantSpec tile = nearest(Rule::six, Grid::tile);
    const GemmSpec nvidia_dgrad = {{}, stochastic(), {.from = Source::quantised}};
    const GemmSpec nvidia_wgrad = {{.size = 16}, stochastic(), nearest(Rule::six)};
    return {
        {"bf16", {}, {}, {}},
        {"quartet2", both(nearest(Rule::mse)), two_pass, two_pass},
        {"quartet2_onepass", both(nearest(Rule::mse)), one_pass, one_pass},
        {"quartet2_plus", both(nearest(Rule::search)), twice, twice},
        {"nvidia", {{}, nearest(Rule::six), tile}, nvidia_dgrad, nvidia_wgrad},
        {"four_over_six", {{}, nearest(Rule::mae), tile}, nvidia_dgrad, nvidia_wgrad},
        {"tetrajet_v2", both(nearest(Rule::six)), short_stochastic, short_stochastic},
    };
}

}  // namespace

const std::vector<Recipe>& builtin_recipes() {
    static const std::vector<Recipe> recipes = make_builtin_recipes();
    return recipes;
}

const Recipe& find_recipe(std::string_view name, std::string_view origin) {
    std::vector<std::string> names;
    for (const Recipe& recipe : builtin_recipes()) {
        if (recipe.name == name) return recipe;
        names.push_back(recipe.name);
    }
    const std::string near = nearest_name(name, names);
    std::string known;
    for (const std::string& n : names) known += (known.empty() ? "" : ", ") + n;
    fail(Exit::config, origin, " = \"", name.substr(0, 80), "\": no such recipe; ",
         near.empty() ? "" : "did you mean " + near + "? ", "built in: ", known);
}

int64_t inner_multiple(const GemmSpec& gemm) {
    if (gemm.keeps_both()) return 1;
    return std::max(inner_multiple(gemm.a, gemm.rotation), inner_multiple(gemm.b, gemm.rotation));
}

}  // namespace q2
