#include "linear/recipe_plan.h"

#include "linear/recipes.h"

namespace q2 {

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
