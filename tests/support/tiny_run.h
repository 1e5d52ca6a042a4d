// Whole runs small enough for a test: a model of 2 blocks on a few kilobytes of the demo's text.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"
#include "train/config.h"
#include "train/metrics.h"

namespace q2::test {

using Overrides = std::vector<std::string>;

inline Overrides operator+(Overrides a, const Overrides& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

/// A folder with a config file, its data, and room for runs.
class TinyRun {
  public:
    static constexpr int64_t kSteps = 8, kVocab = 256, kValWindows = 10;

    TinyRun() {
        const std::string text = read_bytes(QUARTET2_SOURCE_DIR "/data/demo.txt");
        write_tokens(folder_ / "train.bin", text.substr(2000, 1500));  // the run crosses an epoch's end
        write_tokens(folder_ / "val.bin", text.substr(9000, kValWindows * 32 + 5));
        const nlohmann::json config = {
            {"model", {{"layers", 2}, {"width", 128}, {"heads", 2}, {"mlp", 128}, {"vocab", kVocab}}},
            {"data",
             {{"train", {folder_ / "train.bin"}},
              {"val", {folder_ / "val.bin"}},
              {"format", "uint16"},
              {"sequence", 32},
              {"tokenizer", "bytes"}}},
            {"optimizer", {{"lr", 3e-3}}},
            {"schedule", {{"warmup", 0.25}}},
            {"train",
             {{"steps", kSteps},
              {"micro_batch", 4},
              {"accumulate", 2},
              {"eval_every", 4},
              {"eval_micro_batch", 4},
              {"threads", 1},
              {"backend", "cpu"}}},
            {"checkpoint", {{"every", 3}, {"keep", 0}}}};
        write_bytes(config_path(), config.dump());
    }

    std::string operator/(const std::string& name) const { return folder_ / name; }
    const std::string& path() const { return folder_.path(); }
    std::string config_path() const { return folder_ / "tiny.json"; }
    Config config(const Overrides& overrides = {}) const { return load_config(config_path(), overrides); }

    /// Bytes as headerless uint16 tokens.
    static void write_tokens(const std::string& path, const std::string& text) {
        std::string bytes;
        for (const char c : text) bytes += {c, '\0'};
        write_bytes(path, bytes);
    }

  private:
    TempFolder folder_;
};

inline std::string checkpoint_of(const std::string& run, int64_t step) {
    std::string number = std::to_string(step);
    return run + "/checkpoints/step-" + std::string(8 - number.size(), '0') + number;
}

/// What must not depend on how a run came to its end: its records without the clock's, weights and moments.
struct Outcome {
    std::vector<nlohmann::json> records;
    std::string model, optimizer;  ///< the files' bytes
};

inline Outcome outcome_of(const std::string& run, int64_t step = TinyRun::kSteps) {
    Outcome o{read_metrics(run + "/metrics.jsonl"),
              read_bytes(checkpoint_of(run, step) + "/model.safetensors"),
              read_bytes(checkpoint_of(run, step) + "/optimizer.safetensors")};
    for (nlohmann::json& record : o.records)
        for (const char* clock : {"tokens_per_s", "mfu", "memory", "seconds"}) record.erase(clock);
    return o;
}

inline void expect_same(const Outcome& a, const Outcome& b, const std::string& what) {
    ASSERT_FALSE(a.model.empty() || a.optimizer.empty()) << what;
    EXPECT_EQ(a.records, b.records) << what;
    EXPECT_TRUE(a.model == b.model) << what << ": other weights";
    EXPECT_TRUE(a.optimizer == b.optimizer) << what << ": other moments";
}

/// The losses of a run's steps, in order.
inline std::vector<double> losses_of(const std::string& run) {
    std::vector<double> losses;
    for (const nlohmann::json& record : read_metrics(run + "/metrics.jsonl"))
        if (record.contains("loss")) losses.push_back(record["loss"]);
    return losses;
}

}  // namespace q2::test
