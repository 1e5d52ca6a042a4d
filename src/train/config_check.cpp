// What a config must satisfy beyond each setting's own range, and its recipes resolved.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include "linear/recipes.h"
#include "train/config.h"
#include "train/schedule.h"

namespace q2 {
namespace {

/// "640 and 768", the good sizes around `size`.
std::string near_multiples(int64_t size, int64_t multiple) {
    const int64_t low = size / multiple * multiple;
    return low == 0 ? concat(multiple, " is near") : concat(low, " and ", low + multiple, " are near");
}

template <class Key>
void check_multiple(const Key& key, int64_t size, int64_t multiple, const std::string& whose) {
    check(size % multiple == 0, Exit::config, key, " = ", size, ": ", whose, " needs a multiple of ",
          multiple, "; ", near_multiples(size, multiple));
}

/// "2 and 4 are near": the numbers of heads around m.heads that give whole heads of even width and share
/// the key and value heads.
std::string near_heads(const ModelConfig& m) {
    const int64_t shared = std::max<int64_t>(1, m.kv_heads);
    const auto fits = [&](int64_t heads) { return m.width % (2 * heads) == 0 && heads % shared == 0; };
    int64_t below = m.heads, above = m.heads;
    while (below > 0 && !fits(below)) --below;
    while (2 * above <= m.width && !fits(above)) ++above;
    std::string text = below > 0 ? std::to_string(below) : "";
    if (2 * above <= m.width) text += (text.empty() ? "" : " and ") + std::to_string(above);
    if (text.empty()) return "no number does";
    return text + (text.find(' ') == text.npos ? " is near" : " are near");
}

void check_heads(const ModelConfig& m) {
    check(m.head_size || m.width % m.heads == 0, Exit::config, "model.heads = ", m.heads,
          ": must divide model.width = ", m.width, " (", near_heads(m), "), or set model.head_size");
    check(m.heads % m.kv_head_count() == 0, Exit::config, "model.kv_heads = ", m.kv_heads,
          ": must divide model.heads = ", m.heads);
    check(m.head_width() % 2 == 0, Exit::config, "model.head_size = ", m.head_width(),
          ": must be even, rotary embedding turns pairs; ", near_multiples(m.head_width(), 2));
}

/// The inner dimensions of fprop and dgrad; wgrad's, the tokens, is padded.
void check_widths(const ModelConfig& m, const Recipe& recipe) {
    const bool quantises =
        !recipe.fprop.keeps_both() || !recipe.dgrad.keeps_both() || !recipe.wgrad.keeps_both();
    const int64_t least = quantises ? kBlock : 1;
    const int64_t forward = std::max(least, inner_multiple(recipe.fprop));
    const int64_t backward = std::max(least, inner_multiple(recipe.dgrad));
    const std::string whose = "recipe " + recipe.name + " (blocks, rotation and correction groups)";
    check_multiple("model.width", m.width, std::max(forward, backward), whose);
    check_multiple("model.mlp", m.mlp, std::max(forward, backward / 2), whose);
    check_multiple("model.heads * head_size", m.attention_width(), forward, whose);
    check_multiple("(model.heads + 2 kv_heads) * head_size", m.qkv_width(), backward, whose);
}

/// 16x16 tiles of activations or gradients cut the tokens too.
void check_tiles(const Config& c, const Recipe& recipe) {
    if (recipe.fprop.a.grid != Grid::tile && recipe.dgrad.a.grid != Grid::tile) return;
    const std::string whose = "recipe " + recipe.name + " (16x16 tiles of tokens)";
    check_multiple("train.micro_batch * data.sequence", c.train.micro_batch * c.data.sequence, kBlock, whose);
    check_multiple("train.eval_micro_batch * data.sequence", c.train.eval_micro_batch * c.data.sequence,
                   kBlock, whose);
}

void check_batch(const Config& c) {
    for (const auto& [key, sequences] : {std::pair{"train.micro_batch", c.train.micro_batch},
                                         std::pair{"train.eval_micro_batch", c.train.eval_micro_batch}})
        check(sequences <= kMaxMicroBatchTokens / c.data.sequence, Exit::config, key, " = ", sequences,
              ": with data.sequence = ", c.data.sequence, " at most ",
              std::max<int64_t>(1, kMaxMicroBatchTokens / c.data.sequence));
    check_multiple("train.accumulate", c.train.accumulate, c.parallel.gpus, "parallel.gpus");
    check(c.parallel.gpus == 1, Exit::config, "parallel.gpus = ", c.parallel.gpus,
          ": only 1 is supported so far");
    check(c.train.steps <= INT64_MAX / c.step_tokens(), Exit::config, "train.steps = ", c.train.steps,
          ": more than 2^63 tokens in all");
}

void check_schedule(const Config& c) {
    const ScheduleConfig& s = c.schedule;
    check(s.warmup < 1 || s.warmup == std::floor(s.warmup), Exit::config, "schedule.warmup = ", s.warmup,
          ": a fraction below 1 or a whole number of steps");
    const int64_t warmup = steps_of(s.warmup, c.train.steps);
    check(warmup <= c.train.steps, Exit::config, "schedule.warmup = ", warmup,
          ": longer than the run, train.steps = ", c.train.steps);
    const int64_t decay = s.kind == "wsd" ? steps_of(s.decay_fraction, c.train.steps) : 0;
    check(warmup + decay <= c.train.steps, Exit::config, "schedule.decay_fraction = ", s.decay_fraction, ": ",
          decay, " steps, and schedule.warmup's ", warmup, ", are more than train.steps = ", c.train.steps);
}

void check_data(const Config& c) {
    check(!c.data.train.empty(), Exit::config, "data.train is empty: name a token file or a glob");
    check(!c.train.eval_every || !c.data.val.empty(), Exit::config,
          "data.val is empty: name a token file or a glob, or set train.eval_every to 0");
    check(c.data.tokenizer != "bytes" || c.model.vocab <= 256, Exit::config, "model.vocab = ", c.model.vocab,
          ": bytes, data.tokenizer, are 256 tokens; set model.vocab to 256 or data.tokenizer to none");
}

void check_kept(const KeepBf16Config& keep, int64_t layers) {
    for (const auto& [key, blocks] : {std::pair{"first", keep.first}, std::pair{"last", keep.last}})
        check(blocks <= layers, Exit::config, "precision.keep_bf16.", key, " = ", blocks,
              ": the model has model.layers = ", layers, " blocks");
    for (const std::string& text : keep.names) {
        int64_t layer = 0;
        std::string_view name;
        check(parse_layer_name(text, layer, name) && layer < layers, Exit::config,
              "precision.keep_bf16.names: \"", text.substr(0, 80),
              "\": must be qkv_proj, o_proj, gate_up_proj or down_proj, or one block's, as layers.0.o_proj "
              "(of ",
              layers, " blocks)");
    }
}

RecipeSwitch switch_from_json(const nlohmann::json& json, int64_t steps, const std::string& origin) {
    double at = 0;
    nlohmann::json recipe;
    const std::vector<Field> fields = {{"at", &at, "fraction or step", {.low = 0, .open_low = true}},
                                       {"recipe", &recipe, "a name or an object"}};
    read_fields(fields, json, origin);
    check(json.contains("at") && json.contains("recipe"), Exit::config, origin, ": needs both at and recipe");
    check(at < 1 || at == std::floor(at), Exit::config, origin, ".at = ", at,
          ": a fraction below 1 or a whole step");
    check(at < double(steps), Exit::config, origin, ".at = ", at, ": the run has ", steps, " steps");
    return {steps_of(at, steps), recipe_from_json(recipe, origin + ".recipe")};
}

}  // namespace

RecipePlan recipe_plan(const Config& config) {
    const PrecisionConfig& p = config.precision;
    RecipePlan plan{.switches = {{0, recipe_from_json(p.recipe, "precision.recipe")}},
                    .keep = p.keep_bf16,
                    .requantize_once_a_step = p.requantize_weights == "step"};
    check(p.switches.is_array(), Exit::config, "precision.switch: must be a list of {\"at\", \"recipe\"}");
    for (size_t i = 0; i < p.switches.size(); ++i) {
        const std::string origin = concat("precision.switch[", i, "]");
        const RecipeSwitch& before = plan.switches.back();
        RecipeSwitch next = switch_from_json(p.switches[i], config.train.steps, origin);
        check(next.step > before.step, Exit::config, origin, ".at: step ", next.step,
              " must come after step ", before.step, ", where the recipe before it begins");
        plan.switches.push_back(std::move(next));
    }
    return plan;
}

void validate(const Config& c) {
    check_data(c);
    check_heads(c.model);
    check_batch(c);
    check_schedule(c);
    check_kept(c.precision.keep_bf16, c.model.layers);
    for (const RecipeSwitch& entry : recipe_plan(c).switches) {
        check_widths(c.model, entry.recipe);
        check_tiles(c, entry.recipe);
    }
}

}  // namespace q2
