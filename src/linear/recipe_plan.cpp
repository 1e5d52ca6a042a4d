#include "linear/recipe_plan.h"

#include <algorithm>
#include <charconv>

#include "linear/recipes.h"

namespace q2 {

bool parse_layer_name(std::string_view text, int64_t& layer, std::string_view& name) {
    constexpr std::string_view prefix = "layers.";
    layer = -1;
    name = text;
    if (text.starts_with(prefix)) {
        const std::string_view rest = text.substr(prefix.size());
        const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
        const size_t digits = size_t(end - rest.data());
        if (error != std::errc() || layer < 0 || digits >= rest.size() || rest[digits] != '.') return false;
        name = rest.substr(digits + 1);
    }
    return std::find(std::begin(kLinearNames), std::end(kLinearNames), name) != std::end(kLinearNames);
}

bool keeps_bf16(const KeepBf16Config& keep, int64_t layer, int64_t layers, std::string_view name) {
    if (layer < keep.first || layer >= layers - keep.last) return true;
    return std::any_of(keep.names.begin(), keep.names.end(), [&](const std::string& text) {
        int64_t kept_layer = 0;
        std::string_view kept_name;
        return parse_layer_name(text, kept_layer, kept_name) && kept_name == name &&
               (kept_layer == -1 || kept_layer == layer);
    });
}

const Recipe& RecipePlan::at(int64_t step) const {
    const Recipe* recipe = &switches.front().recipe;
    for (const RecipeSwitch& s : switches)
        if (s.step <= step) recipe = &s.recipe;
    return *recipe;
}

std::vector<const Recipe*> RecipePlan::all(bool kept) const {
    if (kept) return {&find_recipe("bf16")};
    std::vector<const Recipe*> recipes;
    for (const RecipeSwitch& s : switches) recipes.push_back(&s.recipe);
    return recipes;
}

}  // namespace q2
