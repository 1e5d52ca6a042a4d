// A run's settings: one JSON file, every key with a default. Each setting is declared once, in fields();
// reading, --set, help, docs/CONFIG.md and the saved resolved config follow from that.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/json_fields.h"
#include "linear/recipe_plan.h"
#include "model/model_config.h"

namespace q2 {

struct DataConfig {
    std::vector<std::string> train, val;  ///< token files or globs
    int64_t sequence = 512;               ///< T, tokens of a training sequence
    std::string format = "auto";          ///< auto: by llm.c's header; uint16, uint32: headerless
    std::string tokenizer = "none";       ///< none (ids), bytes, or a tokenizer.json's path
};

struct PrecisionConfig {
    nlohmann::json recipe = "quartet2";                 ///< as recipe_from_json takes it
    KeepBf16Config keep_bf16;                           ///< wins over every recipe
    nlohmann::json switches = nlohmann::json::array();  ///< key "switch": [{"at": .., "recipe": ..}]
    std::string requantize_weights = "micro_batch";     ///< micro_batch or step
};

struct OptimizerConfig {
    double lr = 1.2e-3;  ///< the schedule's peak
    double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
    std::string decay = "linear";  ///< which tensors decay: linear (blocks' matrices) or matrices (all)
    double clip = 1.0;             ///< of the global gradient norm; 0: never
};

struct ScheduleConfig {
    std::string kind = "cosine";         ///< constant, linear, cosine or wsd
    double warmup = 0.1;                 ///< below 1: of all steps; from 1 up: steps
    double start = 0.01, final = 0.1;    ///< of lr
    double decay_fraction = 0.2;         ///< wsd: the decay's part of all steps
    std::string decay_shape = "linear";  ///< wsd: linear or sqrt (1 - sqrt)
};

struct TrainConfig {
    int64_t steps = 800;
    double max_seconds = 0;            ///< save and end when the process is this old; 0: never
    int64_t stop_after = 0;            ///< save and end after this many of them; 0: after all
    int64_t micro_batch = 32;          ///< sequences a rank holds at once
    int64_t accumulate = 8;            ///< micro-batches of a step, over all ranks
    uint64_t seed = 0;                 ///< of weights, data order and rounding
    std::string non_finite = "stop";   ///< a step whose loss or gradient is not finite: stop or skip
    int64_t max_skips = 10;            ///< skipped steps in a row; one more ends the run
    double skip_zscore = 0;            ///< standard deviations above the mean that skip a step; 0: never
    int64_t skip_window = 128;         ///< updates that mean and deviation are of
    double init_std = 0.02;            ///< output projections: init_std / sqrt(2 layers)
    int64_t eval_every = 100;          ///< steps; 0: never
    int64_t eval_micro_batch = 32;     ///< sequences
    int64_t eval_batches = 0;          ///< micro-batches of an evaluation; 0: all
    std::string backend = "auto";      ///< auto, cpu or cuda
    int64_t device = 0;                ///< the GPU's number
    std::string matmul = "heuristic";  ///< heuristic or timed
    int64_t threads = 0;               ///< of the CPU; 0: all cores
};

struct CheckpointConfig {
    int64_t every = 0;       ///< steps; 0: only after the last
    int64_t keep = 2;        ///< newest checkpoints kept; 0: all
    int64_t keep_every = 0;  ///< checkpoints of multiples of this step are kept for good; 0: none
};

struct LogConfig {
    int64_t every = 1;            ///< steps between lines of metrics.jsonl and progress
    int64_t telemetry_every = 0;  ///< steps between looks at the quantisers; 0: none
};

struct ParallelConfig {
    int64_t gpus = 1;  ///< ranks of this process
};

struct Config {
    ModelConfig model;
    DataConfig data;
    PrecisionConfig precision;
    OptimizerConfig optimizer;
    ScheduleConfig schedule;
    TrainConfig train;
    CheckpointConfig checkpoint;
    LogConfig log;
    ParallelConfig parallel;

    int64_t step_sequences() const { return train.micro_batch * train.accumulate; }
    int64_t step_tokens() const { return step_sequences() * data.sequence; }
};

/// Every setting with its place in `config`, which must outlive the fields.
std::vector<Field> fields(Config& config);

/// Whether the tokenizer.json that a config may name must be there and fit the model.
enum class TokenizerCheck { now, never };

/// Reads a file, then `key=value` overrides, and validates. Throws Exit::data for a file that is missing or
/// not JSON, Exit::config for keys and values, Exit::usage for an override without "=".
Config load_config(const std::string& path, const std::vector<std::string>& overrides = {},
                   TokenizerCheck = TokenizerCheck::now);
/// The same from JSON already read; `origin` begins the messages.
Config config_from_json(const nlohmann::json& json, const std::string& origin);
/// All settings, nested, in the order of fields().
nlohmann::ordered_json config_to_json(const Config& config);
/// A micro-batch holds at most so many tokens.
inline constexpr int64_t kMaxMicroBatchTokens = 1 << 26;
/// What no single range can say; throws Exit::config.
void validate(const Config& config);

/// The recipes of a run, its switches and the layers kept in bf16.
RecipePlan recipe_plan(const Config& config);

/// The text of docs/CONFIG.md.
std::string config_markdown();

}  // namespace q2
