// Whole runs of a tiny model: resumed, on other numbers of threads, in every recipe; switches of recipe and
// kept layers; what a run writes.
#include "train/trainer.h"

#include <set>

#include "linear/recipes.h"
#include "tests/support/tiny_training.h"
#include "train/run_folder.h"
#include "train/schedule.h"

namespace q2::test {
namespace {

namespace fs = std::filesystem;

std::string start(const TinyRun& tiny, const std::string& name, const Overrides& overrides = {}) {
    EXPECT_EQ(start_run(tiny.config(overrides), tiny / name), Exit::ok);
    return tiny / name;
}

void resume_from(const std::string& run, int64_t step, const Overrides& overrides = {}) {
    for (int64_t later = step + 1; later <= TinyRun::kSteps; ++later)
        fs::remove_all(checkpoint_of(run, later));
    ASSERT_TRUE(fs::exists(checkpoint_of(run, step)));
    EXPECT_EQ(resume_run(run, overrides), Exit::ok);
}

struct Variant {
    std::string name;
    Overrides overrides;
};

void PrintTo(const Variant& v, std::ostream* out) { *out << v.name; }

std::vector<Variant> variants() {
    std::vector<Variant> all;
    for (const Recipe& recipe : builtin_recipes())
        all.push_back({recipe.name, {"precision.recipe=" + recipe.name}});
    all.push_back({"tied", {"model.tied=true"}});
    all.push_back({"gqa", {"model.kv_heads=1"}});
    all.push_back({"bfloat16_residual", {"model.residual=bfloat16"}});
    all.push_back({"float32_activations", {"model.activations=float32"}});
    all.push_back({"padded_tokens", {"data.sequence=20", "train.micro_batch=3"}});
    all.push_back({"weights_once_a_step", {"precision.requantize_weights=step"}});
    all.push_back({"keep_and_switch",
                   {"precision.keep_bf16.first=1", "precision.keep_bf16.names=layers.1.o_proj",
                    "precision.switch=[{\"at\": 2, \"recipe\": \"nvidia\"}, {\"at\": 0.9, \"recipe\": "
                    "\"bf16\"}]"}});
    return all;
}

class WholeRun : public testing::TestWithParam<Variant> {};

TEST_P(WholeRun, ResumedTwiceAndOnTwoThreadsHasTheSameBits) {
    const TinyRun tiny;
    const Outcome one = outcome_of(start(tiny, "one", GetParam().overrides));
    const std::string two = start(tiny, "two", GetParam().overrides + Overrides{"train.threads=2"});
    expect_same(one, outcome_of(two), "2 threads");
    resume_from(two, 3);
    expect_same(one, outcome_of(two), "resumed after step 3");
    resume_from(two, 6, {"train.threads=1"});
    expect_same(one, outcome_of(two), "resumed once more, after step 6");
}

INSTANTIATE_TEST_SUITE_P(All, WholeRun, testing::ValuesIn(variants()),
                         [](const auto& info) { return info.param.name; });

TEST(Trainer, ARunWithoutACheckpointResumesFromTheStart) {
    const TinyRun tiny;
    const std::string run = start(tiny, "run");
    const Outcome whole = outcome_of(run);
    fs::remove_all(run + "/checkpoints");
    EXPECT_EQ(resume_run(run, {}), Exit::ok);
    expect_same(whole, outcome_of(run), "from the start");
    EXPECT_EQ(resume_run(run, {}), Exit::ok);
    expect_same(whole, outcome_of(run), "a finished run, resumed");
}

// From step 4 on, whose evaluation (due after step 4) has no record any more and is made again.
TEST(Trainer, ARunWhoseMetricsAreLostGoesOn) {
    const TinyRun tiny;
    const std::string run = start(tiny, "run", {"checkpoint.every=4"});
    Outcome whole = outcome_of(run);
    fs::remove(run + "/metrics.jsonl");
    resume_from(run, 4);
    auto& records = whole.records;
    records.erase(records.begin(), records.begin() + 4);
    EXPECT_EQ(records[0]["step"], 3);
    EXPECT_TRUE(records[0].contains("val_loss"));
    expect_same(whole, outcome_of(run), "from step 4");
}

TEST(Trainer, SecondsGoOnWithTheLastRecordKept) {
    const TinyRun tiny;
    const std::string run = start(tiny, "run"), path = run + "/metrics.jsonl";
    std::string text;
    for (nlohmann::json record : read_metrics(path)) {
        if (record.contains("seconds")) record["seconds"] = 1000 + record["step"].get<double>();
        text += record.dump() + "\n";
    }
    write_bytes(path, text);
    resume_from(run, 6);
    double before = 1005;
    for (const nlohmann::json& record : read_metrics(path)) {
        if (!record.contains("seconds") || record["step"] < 6) continue;
        EXPECT_GT(record["seconds"], before);
        EXPECT_LT(record["seconds"], 1100.0);
        before = record["seconds"];
    }
    EXPECT_GT(before, 1005.0);
}

TEST(Trainer, EveryRecipeAndSeedIsAnotherRun) {
    const TinyRun tiny;
    std::set<std::vector<double>> curves;
    for (const Recipe& recipe : builtin_recipes())
        curves.insert(
            losses_of(start(tiny, recipe.name, {"precision.recipe=" + recipe.name, "train.steps=3"})));
    curves.insert(losses_of(start(tiny, "seed", {"train.seed=1", "train.steps=3"})));
    EXPECT_EQ(curves.size(), builtin_recipes().size() + 1);
}

// The steps before a switch are those of the first recipe; the later ones those of a run that goes on from
// there in the second recipe.
TEST(Trainer, ASwitchOfRecipeIsARunContinuedInTheOtherRecipe) {
    const TinyRun tiny;
    const std::string plain = start(tiny, "plain", {"checkpoint.every=4"});
    const std::vector<double> before = losses_of(plain);
    const std::string at_step =
        start(tiny, "step", {"precision.switch=[{\"at\": 4, \"recipe\": \"nvidia\"}]"});
    const std::string at_half =
        start(tiny, "half", {"precision.switch=[{\"at\": 0.5, \"recipe\": \"nvidia\"}]"});
    expect_same(outcome_of(at_step), outcome_of(at_half), "switch at step 4 of 8 and at 0.5");

    TinyTraining other(tiny.config({"precision.recipe=nvidia"}));
    other.session.load(checkpoint_of(plain, 4));
    const std::vector<double> switched = losses_of(at_step);
    ASSERT_EQ(switched.size(), size_t(TinyRun::kSteps));
    for (size_t step = 0; step < switched.size(); ++step)
        EXPECT_EQ(switched[step], step < 4 ? before[step] : train_step(other.training, int64_t(step)).loss)
            << step;
    EXPECT_NE(before[4], switched[4]);
}

TEST(Trainer, KeptLayersRunInBf16) {
    const TinyRun tiny;
    int runs = 0;
    const auto losses = [&](const std::string& keep, const std::string& value) {
        return losses_of(start(tiny, std::to_string(runs++),
                               {"train.steps=3", "precision.keep_bf16." + keep + "=" + value}));
    };
    const std::vector<double> bf16 =
        losses_of(start(tiny, "bf16", {"train.steps=3", "precision.recipe=bf16"}));
    const std::vector<double> none = losses("first", "0");
    EXPECT_NE(none, bf16);
    EXPECT_EQ(losses("first", "2"), bf16);
    EXPECT_EQ(losses("last", "2"), bf16);
    EXPECT_EQ(losses("names", R"(["qkv_proj", "o_proj", "gate_up_proj", "down_proj"])"), bf16);
    const std::vector<double> first = losses("first", "1"), last = losses("last", "1");
    const auto all_of_block = [](char block) {
        std::string names;
        for (const std::string name : {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"})
            names += (names.empty() ? "[\"layers." : ", \"layers.") + (block + ("." + name + "\""));
        return names + "]";
    };
    EXPECT_EQ(losses("names", all_of_block('0')), first);
    EXPECT_EQ(losses("names", all_of_block('1')), last);
    const std::vector<double> o_proj = losses("names", "o_proj");
    const std::set<std::vector<double>> curves = {none, bf16, first, last, o_proj};
    EXPECT_EQ(curves.size(), 5u);
}

TEST(Trainer, TheLossFallsInEveryRecipe) {
    const TinyRun tiny;
    for (const Recipe& recipe : builtin_recipes()) {
        const std::vector<double> losses = losses_of(start(
            tiny, recipe.name, {"precision.recipe=" + recipe.name, "train.steps=25", "train.eval_every=0"}));
        ASSERT_EQ(losses.size(), 25u);
        EXPECT_NEAR(losses.front(), std::log(256.0), 0.2) << recipe.name;
        EXPECT_LT(losses.back(), 3.3) << recipe.name;
    }
}

TEST(Trainer, MetricsHaveOneMeaningAKey) {
    const TinyRun tiny;
    const Config config = tiny.config();
    const auto records = read_metrics(start(tiny, "run") + "/metrics.jsonl");
    ASSERT_EQ(records.size(), size_t(TinyRun::kSteps) + 2);
    int64_t step = 0;
    double seconds = 0;
    for (const auto& record : records) {
        if (record.contains("val_loss")) {
            EXPECT_EQ(record.size(), 2u) << record;
            EXPECT_EQ(record["step"], step - 1) << "an evaluation is of the weights after its step";
            EXPECT_TRUE(step == 4 || step == 8) << step;
            continue;
        }
        EXPECT_EQ(record.size(), 9u) << record;
        EXPECT_EQ(record["step"], step);
        EXPECT_FLOAT_EQ(record["lr"].get<float>(),
                        float(learning_rate(config.schedule, config.optimizer.lr, step, TinyRun::kSteps)));
        EXPECT_GT(record["loss"], 0.0);
        EXPECT_GT(record["grad_norm"], 0.0);
        EXPECT_EQ(record["tokens"], (step + 1) * 2 * 4 * 32);
        EXPECT_GT(record["tokens_per_s"], 0.0);
        EXPECT_GT(record["seconds"], seconds);
        seconds = record["seconds"];
        ++step;
    }
    EXPECT_EQ(step, TinyRun::kSteps);
}

TEST(Trainer, EvaluationAndLoggingDoNotTouchTheTraining) {
    const TinyRun tiny;
    const std::string often = start(tiny, "often", {"train.eval_every=1"});
    const std::string never = start(tiny, "never", {"train.eval_every=0", "checkpoint.every=0"});
    const std::string rare = start(tiny, "rare", {"train.eval_every=0", "log.every=3"});
    EXPECT_EQ(losses_of(often), losses_of(never));
    EXPECT_TRUE(outcome_of(often).model == outcome_of(never).model);
    EXPECT_FALSE(fs::exists(checkpoint_of(never, 6)));
    const std::vector<double> all = losses_of(never);
    EXPECT_EQ(losses_of(rare), (std::vector<double>{all[2], all[5], all[7]})) << "every third, and the last";
}

TEST(Trainer, KeepsTheNewestCheckpointsAndTheResolvedConfig) {
    const TinyRun tiny;
    const std::string run = start(tiny, "run", {"checkpoint.every=2", "checkpoint.keep=2"});
    for (const int64_t step : {2, 4}) EXPECT_FALSE(fs::exists(checkpoint_of(run, step))) << step;
    for (const int64_t step : {6, 8}) EXPECT_TRUE(fs::exists(checkpoint_of(run, step))) << step;
    const Config written = load_config(run + "/config.json");
    EXPECT_EQ(config_to_json(written),
              config_to_json(tiny.config({"checkpoint.every=2", "checkpoint.keep=2"})));
    const RunCheckpoint newest = open_run(run);
    EXPECT_EQ(newest.folder, checkpoint_of(run, 8));
    EXPECT_EQ(newest.step, 8);
}

TEST(Trainer, StartsWhereAStartWasKilledAndNowhereElse) {
    const TinyRun tiny;
    const std::string killed = tiny / "killed", foreign = tiny / "foreign";
    for (const std::string& folder : {killed, foreign}) fs::create_directory(folder);
    write_bytes(killed + "/config.json.tmp", "{\"mod");
    write_bytes(foreign + "/notes.txt", "mine");
    start(tiny, "killed", {"train.steps=1"});
    EXPECT_FALSE(fs::exists(killed + "/config.json.tmp"));
    expect_error(Exit::usage, {foreign + " exists"}, [&] { start_run(tiny.config(), foreign); });
}

TEST(Trainer, RefusesWhatWouldMixRunsUp) {
    const TinyRun tiny;
    const std::string run = start(tiny, "run", {"train.steps=1"});
    expect_error(Exit::usage, {run + " exists", "--resume"}, [&] { start_run(tiny.config(), run); });
    for (const std::string set : {"optimizer.lr=1", "train.seed=1", "train.steps=9", "model.layers=3"})
        expect_error(Exit::usage, {"--set " + set, "keeps what decides its results"},
                     [&] { resume_run(run, {set}); });
    expect_error(Exit::data, {tiny / "none", "no such run"}, [&] { resume_run(tiny / "none", {}); });
    fs::remove_all(run + "/checkpoints");
    expect_error(Exit::data, {run, "no checkpoint"}, [&] { open_run(run); });
}

TEST(Trainer, AConfigEditedSinceTheCheckpointIsRefused) {
    const TinyRun tiny;
    const std::string run = start(tiny, "run", {"train.steps=2", "train.stop_after=1"});
    auto edited = config_to_json(load_config(run + "/config.json"));
    edited["optimizer"]["lr"] = 0.5;
    write_bytes(run + "/config.json", edited.dump());
    expect_error(Exit::config, {run + "/config.json", "optimizer.lr = 0.5", "put it back"},
                 [&] { resume_run(run, {}); });
}

TEST(Trainer, ARunWhoseCheckpointsAreAllDamagedDoesNotStartOver) {
    const TinyRun tiny;
    const std::string run = start(tiny, "run", {"train.steps=2"});
    const std::string metrics = read_bytes(run + "/metrics.jsonl");
    fs::resize_file(checkpoint_of(run, 2) + "/model.safetensors", 100);
    expect_error(Exit::data, {run, "none of its checkpoints verifies"}, [&] { resume_run(run, {}); });
    EXPECT_EQ(read_bytes(run + "/metrics.jsonl"), metrics);
}

}  // namespace
}  // namespace q2::test
