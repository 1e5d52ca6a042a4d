#include "train/config.h"

#include <filesystem>

#include "linear/recipes.h"
#include "train/tokenizer_file.h"

namespace q2 {
namespace {

// Sizes are bounded so that no count of elements or bytes of a model or batch passes 63 bits.
constexpr double kMaxSteps = 2147483647;  // a draw's address has 32 bits for the step
constexpr double kMaxSequences = 1 << 20, kMaxTokens = 1 << 24;
constexpr NumberRange kPositive = {.low = 1e-30, .high = 1e30};  // not 0 or infinite in float32
constexpr NumberRange kFromZero = {.low = 0, .high = 1e30};
constexpr NumberRange kUnit = {0, 1};
constexpr NumberRange kBelowOne = {.low = 0, .high = 1, .open_high = true};

void add(std::vector<Field>& f, ModelConfig& m) {
    const std::vector<std::string> types = {"float32", "bfloat16"};
    f.push_back({"model.layers", &m.layers, "transformer blocks", {1, 1024}});
    f.push_back({"model.width", &m.width, "of the residual stream", {1, 1 << 17}});
    f.push_back({"model.heads", &m.heads, "query heads", {1, 4096}});
    f.push_back({"model.kv_heads", &m.kv_heads, "key and value heads (GQA); 0: as heads", {0, 4096}});
    f.push_back({"model.head_size", &m.head_size, "width of a head, even; 0: width / heads", {0, 4096}});
    f.push_back({"model.mlp", &m.mlp, "inner width of the SwiGLU MLP", {1, 1 << 19}});
    f.push_back({"model.vocab", &m.vocab, "tokens; every id of the data is below it", {1, 2147483647}});
    f.push_back({"model.tied", &m.tied, "the head is the embedding"});
    f.push_back({"model.rope_theta", &m.rope_theta, "base of the rotary embedding", kPositive});
    f.push_back({"model.norm_eps", &m.norm_eps, "added to the mean square in RMSNorm", kPositive});
    f.push_back({"model.residual", &m.residual, "type of the residual stream", {}, types});
    f.push_back({"model.activations", &m.activations, "type of the other activations", {}, types});
}

void add(std::vector<Field>& f, DataConfig& d) {
    f.push_back({"data.train", &d.train, "token files or globs of the training text"});
    f.push_back({"data.val", &d.val, "token files or globs of the validation text"});
    f.push_back({"data.sequence", &d.sequence, "tokens of a sequence", {1, kMaxTokens}});
    f.push_back({"data.format",
                 &d.format,
                 "of token files; auto: by llm.c's header; uint16, uint32: headerless",
                 {},
                 {"auto", "uint16", "uint32"}});
    f.push_back(
        {"data.tokenizer", &d.tokenizer,
         "how generate reads and prints text: bytes, none (ids), or a tokenizer.json's path (ids, for "
         "a script)"});
}

void add(std::vector<Field>& f, PrecisionConfig& p) {
    f.push_back({"precision.recipe", &p.recipe, "a built-in recipe's name, or an object (Recipes, below)"});
    f.push_back({"precision.keep_bf16.first", &p.keep_bf16.first, "first blocks in bf16", {0, 1024}});
    f.push_back({"precision.keep_bf16.last", &p.keep_bf16.last, "last blocks in bf16", {0, 1024}});
    f.push_back({"precision.keep_bf16.names", &p.keep_bf16.names,
                 "linear layers in bf16: qkv_proj, o_proj, gate_up_proj, down_proj of every block, or "
                 "layers.3.o_proj of one"});
    f.push_back({"precision.switch", &p.switches,
                 "changes of recipe, [{\"at\": 0.8, \"recipe\": \"bf16\"}]; at: below 1 a fraction of all "
                 "steps, from 1 up a step"});
    f.push_back({"precision.requantize_weights",
                 &p.requantize_weights,
                 "when weights are quantised anew",
                 {},
                 {"micro_batch", "step"}});
}

void add(std::vector<Field>& f, OptimizerConfig& o) {
    f.push_back({"optimizer.lr", &o.lr, "peak learning rate", kPositive});
    f.push_back({"optimizer.beta1", &o.beta1, "AdamW's decay of the first moment", kBelowOne});
    f.push_back({"optimizer.beta2", &o.beta2, "AdamW's decay of the second moment", kBelowOne});
    f.push_back({"optimizer.eps", &o.eps, "AdamW's, outside the root", kPositive});
    f.push_back({"optimizer.weight_decay", &o.weight_decay, "decoupled, times the learning rate", kFromZero});
    f.push_back({"optimizer.decay",
                 &o.decay,
                 "what decays: linear (the blocks' matrices) or matrices (embedding and head too)",
                 {},
                 {"linear", "matrices"}});
    f.push_back({"optimizer.clip", &o.clip, "limit of the global gradient norm; 0: none", kFromZero});
}

void add(std::vector<Field>& f, ScheduleConfig& s) {
    f.push_back({"schedule.kind",
                 &s.kind,
                 "course of the learning rate after the warm-up",
                 {},
                 {"constant", "linear", "cosine", "wsd"}});
    f.push_back({"schedule.warmup",
                 &s.warmup,
                 "cosine-shaped warm-up; below 1: fraction of all steps, from 1 up: steps",
                 {0, kMaxSteps}});
    f.push_back({"schedule.start", &s.start, "first learning rate, as a fraction of lr", kUnit});
    f.push_back({"schedule.final", &s.final, "last learning rate, as a fraction of lr", kUnit});
    f.push_back({"schedule.decay_fraction", &s.decay_fraction, "wsd: the decay's fraction of all steps",
                 NumberRange{.low = 0, .high = 1, .open_low = true}});
    f.push_back({"schedule.decay_shape",
                 &s.decay_shape,
                 "wsd: linear, or sqrt (1 - the square root of the progress)",
                 {},
                 {"linear", "sqrt"}});
}

void add(std::vector<Field>& f, TrainConfig& t) {
    f.push_back({"train.steps", &t.steps, "optimiser steps", {1, kMaxSteps}});
    f.push_back({"train.stop_after",
                 &t.stop_after,
                 "save and end after this many steps, on the schedule of all; 0: do all",
                 {0, kMaxSteps}});
    f.push_back(
        {"train.max_seconds", &t.max_seconds,
         "save and end, with exit code 8, after the step in which the process becomes this old; 0: no "
         "limit. Leave room for a step and a save",
         kFromZero});
    f.push_back({"train.micro_batch", &t.micro_batch, "sequences a rank runs at once", {1, kMaxSequences}});
    f.push_back(
        {"train.accumulate", &t.accumulate, "micro-batches of a step, over all ranks", {1, kMaxSequences}});
    f.push_back({"train.seed", &t.seed, "of initial weights, data order and rounding; 64 bits", {.low = 0}});
    f.push_back({"train.init_std", &t.init_std,
                 "standard deviation of initial weights; output projections: / sqrt(2 layers)", kPositive});
    f.push_back({"train.non_finite",
                 &t.non_finite,
                 "a step whose loss or gradient norm is not finite: stop the run, or skip its update",
                 {},
                 {"stop", "skip"}});
    f.push_back(
        {"train.max_skips", &t.max_skips, "skipped updates in a row; one more ends the run", {0, kMaxSteps}});
    f.push_back({"train.skip_zscore", &t.skip_zscore,
                 "an update is also skipped whose loss or gradient norm lies more than this many standard "
                 "deviations above its window's mean; 0: never",
                 kFromZero});
    f.push_back({"train.skip_window",
                 &t.skip_window,
                 "updates made last that the mean and the deviation are of; half of them must be there first",
                 {4, 1 << 16}});
    f.push_back({"train.eval_every", &t.eval_every, "steps between evaluations; 0: none", {0, kMaxSteps}});
    f.push_back(
        {"train.eval_micro_batch", &t.eval_micro_batch, "sequences evaluated at once", {1, kMaxSequences}});
    f.push_back({"train.eval_batches",
                 &t.eval_batches,
                 "micro-batches of an evaluation; 0: all of data.val",
                 {0, kMaxSteps}});
    f.push_back(
        {"train.backend", &t.backend, "auto: a usable GPU, else the CPU", {}, {"auto", "cpu", "cuda"}});
    f.push_back({"train.device", &t.device, "the GPU's number", {0, 1024}});
    f.push_back({"train.matmul",
                 &t.matmul,
                 "how a GPU's algorithm for a product is chosen: by cuBLASLt's heuristic, or the fastest of "
                 "its first "
                 "eight as timed once; a resumed run keeps the choices",
                 {},
                 {"heuristic", "timed"}});
    f.push_back({"train.threads", &t.threads, "of the CPU; 0: one a core", {0, 4096}});
}

}  // namespace

std::vector<Field> fields(Config& c) {
    std::vector<Field> f;
    add(f, c.model);
    add(f, c.data);
    add(f, c.precision);
    add(f, c.optimizer);
    add(f, c.schedule);
    add(f, c.train);
    f.push_back({"checkpoint.every",
                 &c.checkpoint.every,
                 "steps between checkpoints; 0: the last only",
                 {0, kMaxSteps}});
    f.push_back(
        {"checkpoint.keep", &c.checkpoint.keep, "newest checkpoints to keep; 0: all", {0, kMaxSteps}});
    f.push_back({"checkpoint.keep_every",
                 &c.checkpoint.keep_every,
                 "checkpoints whose step is a multiple of this stay for good; 0: none",
                 {0, kMaxSteps}});
    f.push_back(
        {"log.every", &c.log.every, "steps between lines of metrics.jsonl and progress", {1, kMaxSteps}});
    f.push_back(
        {"log.telemetry_every",
         &c.log.telemetry_every,
         "steps between records of how each layer's quantisers did, a micro-batch's time each; 0: none",
         {0, kMaxSteps}});
    f.push_back({"parallel.gpus",
                 &c.parallel.gpus,
                 "ranks that this process runs, one a GPU; only 1 so far",
                 {1, 1024}});
    return f;
}

namespace {

void check_tokenizer(const Config& c) {
    const std::string& name = c.data.tokenizer;
    if (name == "bytes" || name == "none") return;
    std::error_code unreachable;
    check(std::filesystem::exists(name, unreachable), Exit::data, name,
          ": no such file; data.tokenizer must be bytes, none, or the path of a tokenizer.json");
    check_tokenizer_file(name, c.model.vocab);
}

/// What is wrong with a config, or nothing.
std::string problem_of(const Config& config) {
    try {
        validate(config);
        return "";
    } catch (const Error& e) {
        return e.what();
    }
}

}  // namespace

Config load_config(const std::string& path, const std::vector<std::string>& overrides,
                   TokenizerCheck tokenizer) {
    Config config;
    read_fields(fields(config), read_json_file(path), path);
    const std::string before = problem_of(config);
    for (const std::string& assignment : overrides) {
        nlohmann::json& recipe = config.precision.recipe;
        nlohmann::json edited = recipe.is_string() ? nlohmann::json::object({{"base", recipe}}) : recipe;
        apply_override(fields(config), assignment);
        // One field of a recipe edits the recipe that was there.
        if (!assignment.starts_with("precision.recipe.")) continue;
        edited.merge_patch(recipe);
        recipe = edited;
    }
    const std::string problem = problem_of(config);
    std::string origin = path;
    if (problem != before)  // then the overrides brought it
        for (const std::string& assignment : overrides) origin += " with --set " + clipped(assignment);
    check(problem.empty(), Exit::config, origin, ": ", problem);
    if (tokenizer == TokenizerCheck::now) check_tokenizer(config);
    return config;
}

Config config_from_json(const nlohmann::json& json, const std::string& origin) {
    Config config;
    read_fields(fields(config), json, origin);
    validate(config);
    return config;
}

nlohmann::ordered_json config_to_json(const Config& config) {
    Config copy = config;
    return dump_fields(fields(copy));
}

std::string config_markdown() {
    Config defaults;
    return "# Settings\n\n"
           "One JSON file a run (`quartet2 train CONFIG`); every key has a default, and `--set key=value` "
           "overrides\n"
           "one. Keys are shown dotted: `model.width` is `{\"model\": {\"width\": ...}}`. Written by "
           "`quartet2 config\n"
           "--markdown > docs/CONFIG.md` from the declarations in "
           "[src/train/config.cpp](../src/train/config.cpp).\n\n" +
           markdown_tables(fields(defaults)) + "\n" + recipe_markdown();
}

}  // namespace q2
