// Recipes: the table against docs/NUMERICS.md section 7, the files, edits, and what is refused.
#include "linear/recipes.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/json_fields.h"

namespace q2 {
namespace {

using nlohmann::json;

Recipe parse(const std::string& text) { return recipe_from_json(json::parse(text)); }

void expect_refused(const std::string& text, const std::string& part) {
    try {
        parse(text);
        ADD_FAILURE() << text << " was accepted";
    } catch (const Error& e) {
        EXPECT_EQ(int(e.code), int(Exit::config)) << e.what();
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what() << "\n  lacks: " << part;
    }
}

TEST(Recipes, TableHoldsThePapersRows) {
    EXPECT_TRUE(find_recipe("bf16").fprop.keeps_both() && find_recipe("bf16").dgrad.keeps_both());
    const Recipe& q = find_recipe("quartet2");
    EXPECT_EQ(q.fprop.a, (QuantSpec{.rounding = Rounding::nearest, .rule = Rule::mse}));
    EXPECT_EQ(q.fprop.b, q.fprop.a);
    EXPECT_EQ(q.fprop.rotation.size, 0);
    EXPECT_EQ(q.dgrad, q.wgrad);
    EXPECT_EQ(q.dgrad.rotation, (Rotation{128, 1, true}));
    EXPECT_EQ(q.dgrad.a, (QuantSpec{.rounding = Rounding::ms_eden, .correction = 128}));
    EXPECT_EQ(q.wgrad.b.from, Source::quantised);
    EXPECT_EQ(find_recipe("quartet2_plus").dgrad.rotation.rounds, 2);
    EXPECT_EQ(find_recipe("quartet2_plus").fprop.a.rule, Rule::search);
    EXPECT_EQ(find_recipe("quartet2_onepass").wgrad.b.range, Range::post_hoc);
    const Recipe& n = find_recipe("nvidia");
    EXPECT_EQ(n.fprop.b.grid, Grid::tile);
    EXPECT_EQ(n.dgrad.b, (QuantSpec{.from = Source::quantised}));  // the forward's codes, transposed
    EXPECT_FALSE(n.dgrad.keeps_both());
    EXPECT_EQ(n.wgrad.rotation.size, 16);
    EXPECT_EQ(n.wgrad.b.from, Source::original);
    EXPECT_EQ(find_recipe("four_over_six").fprop.a.rule, Rule::mae);
    EXPECT_EQ(find_recipe("four_over_six").dgrad, n.dgrad);
    EXPECT_EQ(find_recipe("tetrajet_v2").wgrad.rotation.size, 32);
    EXPECT_EQ(find_recipe("tetrajet_v2").wgrad.b.rounding, Rounding::stochastic);
}

TEST(Recipes, FilesEqualTheTable) {
    const std::string folder = std::string(QUARTET2_SOURCE_DIR) + "/configs/recipes/";
    for (const Recipe& recipe : builtin_recipes()) {
        const json file = read_json_file(folder + recipe.name + ".json");
        EXPECT_EQ(recipe_from_json(file), recipe) << recipe.name;
        EXPECT_EQ(file, json(recipe_to_json(recipe))) << recipe.name;
    }
    size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        files += entry.path().extension() == ".json";
    EXPECT_EQ(files, builtin_recipes().size());
}

TEST(Recipes, EditsChangeOneField) {
    Recipe expected = find_recipe("quartet2");
    expected.name = "quartet2_edited";
    EXPECT_EQ(parse(R"({"base": "quartet2"})"), expected);
    expected.dgrad.a = {.rounding = Rounding::stochastic};
    EXPECT_EQ(parse(R"({"base": "quartet2", "dgrad": {"a": {"round": "stochastic"}}})"), expected);
    Recipe six = find_recipe("quartet2");
    six.name = "six";
    six.fprop.a.rule = Rule::six;
    EXPECT_EQ(parse(R"({"name": "six", "base": "quartet2", "fprop": {"a": {"rule": "six"}}})"), six);
    EXPECT_FALSE(parse(R"({"base": "quartet2", "wgrad": {"signs": "fixed"}})").wgrad.rotation.redrawn);
    EXPECT_EQ(parse(R"({"base": "quartet2_plus", "wgrad": {"rotation": 0}})").wgrad.rotation, Rotation{});
}

TEST(Recipes, InheritedSettingsThatARoundingDoesNotUseAreCleared) {
    const Recipe r = parse(R"({"base": "quartet2_onepass", "dgrad": {"a": {"round": "stochastic"}},
                               "fprop": {"a": {"round": "ms_eden"}}})");
    EXPECT_EQ(r.dgrad.a, (QuantSpec{.rounding = Rounding::stochastic}));
    EXPECT_EQ(r.fprop.a, (QuantSpec{.rounding = Rounding::ms_eden}));
    // A kept forward operand has no quantised copy to start from.
    const Recipe w = parse(R"({"base": "quartet2", "fprop": {"b": {"round": "keep"}}})");
    EXPECT_EQ(w.dgrad.b.from, Source::original);
    EXPECT_EQ(w.wgrad.b.from, Source::quantised);
    const Recipe x = parse(R"({"base": "quartet2", "fprop": {"a": {"round": "keep"}}})");
    EXPECT_EQ(x.dgrad.b.from, Source::quantised);
    EXPECT_EQ(x.wgrad.b.from, Source::original);
}

TEST(Recipes, WritingReadsBack) {
    for (const char* text : {R"({"base": "nvidia", "wgrad": {"b": {"round": "ms_eden", "correction": 16}}})",
                             R"({"base": "tetrajet_v2", "dgrad": {"signs": "fixed", "rounds": 2}})",
                             R"({"fprop": {"a": {"round": "stochastic", "rule": "absmax"}}})"})
        EXPECT_EQ(recipe_from_json(recipe_to_json(parse(text))), parse(text)) << text;
}

TEST(Recipes, UnknownNamesAndKeysAreRefused) {
    expect_refused(R"("quartet")",
                   "recipe = \"quartet\": no such recipe; did you mean quartet2? built in: bf16,");
    expect_refused(R"({"base": "nvdia"})", "recipe.base = \"nvdia\": no such recipe; did you mean nvidia?");
    expect_refused(R"({"base": 3})", "recipe.base");
    expect_refused("3", "a recipe is a name or an object");
    expect_refused(R"({"base": "quartet2", "fprob": {}})", "did you mean fprop?");
    expect_refused(R"({"base": "quartet2", "dgrad": {"a": {"rond": "keep"}}})",
                   "did you mean dgrad.a.round?");
    expect_refused(R"({"dgrad": {"a": {"round": "up"}}})",
                   "dgrad.a.round = \"up\": must be one of keep, nearest");
    expect_refused(R"({"dgrad": {"a": "keep"}})", "dgrad.a = \"keep\": an object");
    expect_refused(R"({"dgrad": 1})", "an object of settings");
    expect_refused(R"({"base": "bf16", "name": "quartet2"})", "choose another name");
}

TEST(Recipes, CombinationsThatMeanNothingAreRefused) {
    expect_refused(R"({"dgrad": {"rotation": 48}})",
                   "recipe.dgrad.rotation = 48: must be 0, 16, 32, 64 or 128");
    expect_refused(R"({"dgrad": {"rounds": 3}})", "must be 1 to 2");
    expect_refused(R"({"dgrad": {"rounds": 2}})", "does not use rounds and signs");
    expect_refused(R"({"dgrad": {"signs": "fixed"}})", "does not use rounds and signs");
    expect_refused(R"({"dgrad": {"a": {"round": "ms_eden", "correction": 32}}})", "must be 16 or 128");
    expect_refused(R"({"dgrad": {"a": {"round": "ms_eden", "range": "post_hoc"}}})",
                   "needs \"correction\": 16");
    expect_refused(R"({"dgrad": {"a": {"round": "ms_eden", "rule": "mse"}}})",
                   "recipe.dgrad.a.rule = \"mse\": rounding ms_eden does not use it");
    expect_refused(R"({"dgrad": {"a": {"round": "stochastic", "grid": "16x16"}}})", "does not use it");
    expect_refused(R"({"fprop": {"a": {"round": "nearest", "correction": 16}}})", "does not use it");
    expect_refused(R"({"fprop": {"a": {"range": "post_hoc"}}})", "rounding keep does not use it");
    expect_refused(R"({"dgrad": {"a": {"round": "stochastic", "rule": "search"}}})",
                   "stochastic rounding takes");
    expect_refused(R"({"base": "quartet2", "fprop": {"rotation": 16}})",
                   "recipe.fprop.rotation = 16: must be 0");
    expect_refused(R"({"base": "quartet2", "dgrad": {"a": {"from": "quantised"}}})", "recipe.dgrad.a.from");
    expect_refused(R"({"base": "quartet2", "fprop": {"b": {"from": "quantised"}}})", "recipe.fprop.b.from");
}

TEST(Recipes, ARotatedForwardIsFineWhereNothingStartsFromItsCodes) {
    EXPECT_EQ(parse(R"({"base": "quartet2", "fprop": {"rotation": 32}, "dgrad": {"b": {"from": "original"}},
                        "wgrad": {"b": {"from": "original"}}})")
                  .fprop.rotation.size,
              32);
}

TEST(Recipes, InnerMultiples) {
    EXPECT_EQ(inner_multiple(find_recipe("bf16").dgrad), 1);
    EXPECT_EQ(inner_multiple(find_recipe("nvidia").dgrad), 16);
    EXPECT_EQ(inner_multiple(find_recipe("tetrajet_v2").dgrad), 32);
    EXPECT_EQ(inner_multiple(find_recipe("quartet2").dgrad), 128);
    EXPECT_EQ(inner_multiple(parse(R"({"dgrad": {"a": {"round": "ms_eden"}}})").dgrad), 128);
}

}  // namespace
}  // namespace q2
