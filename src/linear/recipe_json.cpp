// Recipes as JSON: enumerations become text, which fields read, edit and write.
#include <algorithm>
#include <utility>

#include "base/json_fields.h"
#include "linear/recipes.h"

namespace q2 {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

template <class E>
using Words = std::vector<std::pair<E, const char*>>;

const Words<Rounding> kRoundings = {{Rounding::keep, "keep"},
                                    {Rounding::nearest, "nearest"},
                                    {Rounding::stochastic, "stochastic"},
                                    {Rounding::ms_eden, "ms_eden"}};
const Words<Rule> kRules = {{Rule::six, "six"},
                            {Rule::mse, "mse"},
                            {Rule::mae, "mae"},
                            {Rule::absmax, "absmax"},
                            {Rule::search, "search"}};
const Words<Grid> kGrids = {{Grid::block, "1x16"}, {Grid::tile, "16x16"}};
const Words<Range> kRanges = {{Range::two_pass, "two_pass"}, {Range::post_hoc, "post_hoc"}};
const Words<Source> kSources = {{Source::original, "original"}, {Source::quantised, "quantised"}};
const Words<bool> kSigns = {{true, "redrawn"}, {false, "fixed"}};

template <class E>
std::string word_of(const Words<E>& words, E value) {
    return std::find_if(words.begin(), words.end(), [&](auto& w) { return w.first == value; })->second;
}
template <class E>
E value_of(const Words<E>& words, const std::string& word) {
    return std::find_if(words.begin(), words.end(), [&](auto& w) { return w.second == word; })->first;
}
template <class E>
std::vector<std::string> choices_of(const Words<E>& words) {
    std::vector<std::string> choices;
    for (const auto& [value, word] : words) choices.push_back(word);
    return choices;
}

struct QuantText {
    std::string round, rule, grid;
    int64_t correction;
    std::string range, from;
};

struct GemmText {
    int64_t rotation, rounds;
    std::string signs;
    QuantText a, b;
};

QuantText text_of(const QuantSpec& q) {
    return {word_of(kRoundings, q.rounding), word_of(kRules, q.rule),  word_of(kGrids, q.grid), q.correction,
            word_of(kRanges, q.range),       word_of(kSources, q.from)};
}
GemmText text_of(const GemmSpec& g) {
    return {g.rotation.size, g.rotation.rounds, word_of(kSigns, g.rotation.redrawn), text_of(g.a),
            text_of(g.b)};
}

QuantSpec spec_of(const QuantText& t) {
    return {value_of(kRoundings, t.round), value_of(kRules, t.rule),
            value_of(kGrids, t.grid),      int(t.correction),
            value_of(kRanges, t.range),    value_of(kSources, t.from)};
}
GemmSpec spec_of(const GemmText& t) {
    return {{int(t.rotation), int(t.rounds), value_of(kSigns, t.signs)}, spec_of(t.a), spec_of(t.b)};
}

void add_fields(std::vector<Field>& fields, const std::string& prefix, QuantText& q) {
    fields.push_back({prefix + "round",
                      &q.round,
                      "how elements are rounded; keep: not quantised",
                      {},
                      choices_of(kRoundings)});
    fields.push_back({prefix + "rule",
                      &q.rule,
                      "nearest, stochastic: how a block's scale is chosen (search: nearest only)",
                      {},
                      choices_of(kRules)});
    fields.push_back({prefix + "grid", &q.grid, "nearest: elements of one scale", {}, choices_of(kGrids)});
    fields.push_back(
        {prefix + "correction", &q.correction, "ms_eden: elements of one correction, 16 or 128", {16, 128}});
    fields.push_back({prefix + "range",
                      &q.range,
                      "ms_eden: tensor maximum first, or corrected over scales alone (needs correction 16)",
                      {},
                      choices_of(kRanges)});
    fields.push_back({prefix + "from",
                      &q.from,
                      "dgrad.b (W) and wgrad.b (X): the operand itself or the forward's quantised copy",
                      {},
                      choices_of(kSources)});
}
void add_gemm_fields(std::vector<Field>& fields, const std::string& prefix, GemmText& g) {
    fields.push_back({prefix + "rotation",
                      &g.rotation,
                      "elements of a Hadamard run of both operands: 16, 32, 64, 128; 0: none",
                      {0, 128}});
    fields.push_back({prefix + "rounds", &g.rounds, "of signs and Hadamard", {1, 2}});
    fields.push_back({prefix + "signs",
                      &g.signs,
                      "redrawn: for each micro-batch; fixed: once for the run",
                      {},
                      choices_of(kSigns)});
}
void add_fields(std::vector<Field>& fields, const std::string& prefix, GemmText& g) {
    add_gemm_fields(fields, prefix, g);
    add_fields(fields, prefix + "a.", g.a);
    add_fields(fields, prefix + "b.", g.b);
}

// ---- Validation

/// A setting that this rounding does not use.
struct Unused {
    const char* key;
    bool unused, is_default;
};

/// Refuses unused settings that `given` holds and clears those inherited from the base.
void canonicalise(QuantSpec& q, const json& given, const std::string& at) {
    const bool scaled = q.rounding == Rounding::nearest || q.rounding == Rounding::stochastic;
    const bool eden = q.rounding == Rounding::ms_eden;
    const QuantSpec none;
    for (const Unused& u : {Unused{"rule", !scaled, q.rule == none.rule},
                            Unused{"grid", q.rounding != Rounding::nearest, q.grid == none.grid},
                            Unused{"correction", !eden, q.correction == none.correction},
                            Unused{"range", !eden, q.range == none.range}})
        check(!u.unused || u.is_default || !given.contains(u.key), Exit::config, at, ".", u.key, " = ",
              given.value(u.key, json()).dump(), ": rounding ", word_of(kRoundings, q.rounding),
              " does not use it; leave it out");
    if (!scaled) q.rule = none.rule;
    if (q.rounding != Rounding::nearest) q.grid = none.grid;
    if (!eden) q.correction = none.correction;
    if (!eden) q.range = none.range;
}

void validate(const QuantSpec& q, const std::string& at) {
    check(q.correction == 16 || q.correction == 128, Exit::config, at, ".correction = ", q.correction,
          ": must be 16 or 128");
    check(q.rounding != Rounding::stochastic || q.rule != Rule::search, Exit::config, at,
          ".rule = \"search\": stochastic rounding takes six, mse, mae or absmax");
    check(q.range != Range::post_hoc || q.correction == 16, Exit::config, at,
          ".range = \"post_hoc\": needs \"correction\": 16");
}

void validate(const Rotation& rotation, const std::string& at) {
    const int n = rotation.size;
    check(n == 0 || n == 16 || n == 32 || n == 64 || n == 128, Exit::config, at, ".rotation = ", n,
          ": must be 0, 16, 32, 64 or 128");
}

void validate(const Recipe& recipe, const std::string& origin) {
    for (const auto& [name, gemm] : {std::pair<const char*, const GemmSpec&>{"fprop", recipe.fprop},
                                     {"dgrad", recipe.dgrad},
                                     {"wgrad", recipe.wgrad}}) {
        const std::string at = origin + "." + name;
        validate(gemm.rotation, at);
        validate(gemm.a, at + ".a");
        validate(gemm.b, at + ".b");
        const bool forward = &gemm == &recipe.fprop;
        check(gemm.a.from == Source::original && (!forward || gemm.b.from == Source::original), Exit::config,
              at, ".", gemm.a.from == Source::original ? "b" : "a",
              ".from = \"quantised\": only dgrad.b (W) and wgrad.b (X) have a quantised copy");
    }
    // The forward's codes are of the rotated operand; the backward needs those of the operand itself.
    const bool rereads = recipe.dgrad.rereads_codes() || recipe.wgrad.rereads_codes();
    check(!rereads || recipe.fprop.rotation.size == 0, Exit::config, origin,
          ".fprop.rotation = ", recipe.fprop.rotation.size,
          ": must be 0 where dgrad.b or wgrad.b is \"from\": \"quantised\"");
}

/// The same for a GEMM: without a rotation neither rounds nor signs are used.
void canonicalise(GemmSpec& gemm, const json& given, const std::string& at) {
    canonicalise(gemm.a, given.value("a", json::object()), at + ".a");
    canonicalise(gemm.b, given.value("b", json::object()), at + ".b");
    if (gemm.rotation.size) return;
    const bool unused_given = (given.contains("rounds") && gemm.rotation.rounds != 1) ||
                              (given.contains("signs") && !gemm.rotation.redrawn);
    check(!unused_given, Exit::config, at, ".rotation = 0: does not use rounds and signs; leave them out");
    gemm.rotation = {};
}

/// The name "quartet2" must mean quartet2 in every log.
void check_name(const Recipe& recipe, const std::string& origin) {
    for (const Recipe& builtin : builtin_recipes())
        check(recipe.name != builtin.name || recipe == builtin, Exit::config, origin, ".name = \"",
              recipe.name, "\": is a built-in recipe and this one differs from it; choose another name");
}

Recipe edited(const Recipe& base, const json& edits, const std::string& origin) {
    GemmText fprop = text_of(base.fprop), dgrad = text_of(base.dgrad), wgrad = text_of(base.wgrad);
    Recipe recipe;
    std::string base_name;
    recipe.name = base.name.empty() ? "custom" : base.name + "_edited";
    std::vector<Field> fields = {{"name", &recipe.name, "as logs show it"},
                                 {"base", &base_name, "the built-in recipe that this one edits"}};
    add_fields(fields, "fprop.", fprop);
    add_fields(fields, "dgrad.", dgrad);
    add_fields(fields, "wgrad.", wgrad);
    read_fields(fields, edits, origin);
    recipe.fprop = spec_of(fprop);
    recipe.dgrad = spec_of(dgrad);
    recipe.wgrad = spec_of(wgrad);
    for (const auto& [name, gemm] : {std::pair<const char*, GemmSpec*>{"fprop", &recipe.fprop},
                                     {"dgrad", &recipe.dgrad},
                                     {"wgrad", &recipe.wgrad}})
        canonicalise(*gemm, edits.value(name, json::object()), origin + "." + name);
    // A kept forward operand has no codes to start from.
    if (recipe.fprop.b.rounding == Rounding::keep) recipe.dgrad.b.from = Source::original;
    if (recipe.fprop.a.rounding == Rounding::keep) recipe.wgrad.b.from = Source::original;
    return recipe;
}

ordered_json quant_to_json(const QuantSpec& q) {
    const QuantText text = text_of(q);
    ordered_json out = {{"round", text.round}};
    if (q.rounding == Rounding::nearest || q.rounding == Rounding::stochastic) out["rule"] = text.rule;
    if (q.rounding == Rounding::nearest) out["grid"] = text.grid;
    if (q.rounding == Rounding::ms_eden) out["correction"] = text.correction;
    if (q.rounding == Rounding::ms_eden) out["range"] = text.range;
    if (q.from == Source::quantised) out["from"] = text.from;
    return out;
}

ordered_json gemm_to_json(const GemmSpec& gemm) {
    ordered_json out = {{"rotation", gemm.rotation.size}};
    if (gemm.rotation.size) out["rounds"] = gemm.rotation.rounds;
    if (gemm.rotation.size) out["signs"] = word_of(kSigns, gemm.rotation.redrawn);
    out["a"] = quant_to_json(gemm.a);
    out["b"] = quant_to_json(gemm.b);
    return out;
}

}  // namespace

Recipe recipe_from_json(const json& value, const std::string& origin) {
    if (value.is_string()) return find_recipe(value.get<std::string>(), origin);
    check(value.is_object(), Exit::config, origin, " = ", shown(value), ": a recipe is a name or an object");
    Recipe base;
    if (value.contains("base")) {
        check(value["base"].is_string(), Exit::config, origin, ".base: must be a built-in recipe's name");
        base = find_recipe(value["base"].get<std::string>(), origin + ".base");
    }
    const Recipe recipe = edited(base, value, origin);
    validate(recipe, origin);
    check_name(recipe, origin);
    return recipe;
}

ordered_json recipe_to_json(const Recipe& recipe) {
    return {{"name", recipe.name},
            {"fprop", gemm_to_json(recipe.fprop)},
            {"dgrad", gemm_to_json(recipe.dgrad)},
            {"wgrad", gemm_to_json(recipe.wgrad)}};
}

std::string recipe_markdown() {
    std::string names;
    for (const Recipe& recipe : builtin_recipes())
        names += concat(names.empty() ? "" : ", ", "`", recipe.name, "`");
    GemmText gemm = text_of(GemmSpec{});
    std::vector<Field> fields;
    add_gemm_fields(fields, "gemm.", gemm);
    add_fields(fields, "gemm.operand.", gemm.a);
    return "## Recipes\n\n`precision.recipe` is a built-in name (" + names +
           ";\nthe same as JSON in [configs/recipes](../configs/recipes)) or an object: a whole recipe, or\n"
           "`\"base\"` and edits, such as `{\"base\": \"quartet2\", \"dgrad\": {\"a\": {\"round\": "
           "\"stochastic\"}}}`.\n`\"name\"` is what logs show. Below, `gemm` stands for `fprop` (a: X, b: "
           "W), "
           "`dgrad` (a: E, b: W) and\n`wgrad` (a: E, b: X), and `operand` for `a` and `b`. Settings that a "
           "rounding does not use are refused.\n\n#" +
           markdown_tables(fields);
}

}  // namespace q2
