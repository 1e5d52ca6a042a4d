// Updates that are not made: limits from the window, whole runs with a spike and with a NaN in one batch,
// resumed, and the state's way through a checkpoint.
#include "train/guard.h"

#include <cmath>
#include <limits>

#include "tests/support/tiny_training.h"
#include "train/trainer.h"

namespace q2::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

StepState outcome(float loss, float norm, uint32_t skip = kNotSkipped) {
    StepState s;
    s.loss = loss;
    s.grad_norm = norm;
    s.skip = skip;
    return s;
}

TEST(SkipReason, NonFiniteFirstThenTheLimits) {
    StepState s = outcome(2, 3);
    EXPECT_EQ(skip_reason(s), kNotSkipped);
    s.loss_limit = 2, s.norm_limit = 3;
    EXPECT_EQ(skip_reason(s), kNotSkipped) << "at the limit";
    s.norm_limit = 2.999f;
    EXPECT_EQ(skip_reason(s), kHighNorm);
    s.loss_limit = 1.999f;
    EXPECT_EQ(skip_reason(s), kHighLoss);
    for (const float bad : {kNaN, StepState::kNoLimit, -StepState::kNoLimit}) {
        EXPECT_EQ(skip_reason(outcome(bad, 1)), kNonFinite) << bad;
        EXPECT_EQ(skip_reason(outcome(1, bad)), kNonFinite) << bad;
    }
    EXPECT_EQ(skip_reason(outcome(1, 1, kHighLoss)), kHighLoss) << "a skip that stands";
    StepState large = outcome(1, 3e19f);
    EXPECT_EQ(skip_reason(large), kNonFinite) << "AdamW could not hold its square";
    large.clip_factor = 0.5f;
    EXPECT_EQ(skip_reason(large), kNotSkipped);
}

struct Guarded {
    explicit Guarded(const Overrides& overrides)
        : run(tiny.config(overrides)), guard(run.session.config().train) {}
    std::optional<std::string> see(const StepState& s) { return guard.judge(run.training, step++, s); }

    TinyRun tiny;
    TinyTraining run;
    UpdateGuard guard;
    int64_t step = 0;
};

const Overrides kZscore = {"train.skip_zscore=2", "train.skip_window=4", "train.non_finite=skip"};

TEST(UpdateGuard, LimitsAreOfTheUpdatesMadeLast) {
    Guarded g(kZscore);
    EXPECT_EQ(g.guard.limits().loss, StepState::kNoLimit);
    g.see(outcome(1, 10));
    EXPECT_EQ(g.guard.limits().loss, StepState::kNoLimit) << "one of a window of 4";
    g.see(outcome(3, 30));
    EXPECT_FLOAT_EQ(g.guard.limits().loss, float(2 + 2 * std::sqrt(2.0)));
    EXPECT_FLOAT_EQ(g.guard.limits().grad_norm, float(20 + 2 * std::sqrt(200.0)));
    for (const float loss : {5.0f, 5.0f, 5.0f, 5.0f}) g.see(outcome(loss, 7));
    EXPECT_EQ(g.guard.limits().loss, 5.0f) << "the first two have left";
    EXPECT_EQ(g.guard.limits().grad_norm, 7.0f);
}

TEST(UpdateGuard, WhatIsSkippedLeavesTheWindowAlone) {
    Guarded g(kZscore);
    for (const float loss : {1.0f, 2.0f, 3.0f}) g.see(outcome(loss, loss));
    const UpdateLimits before = g.guard.limits();
    for (const auto& [loss, skip] : {std::pair{kNaN, kNonFinite}, std::pair{100.0f, kHighLoss}}) {
        const auto line = g.see(outcome(loss, 2, skip));
        ASSERT_TRUE(line);
        EXPECT_EQ(g.guard.limits().loss, before.loss);
        EXPECT_EQ(g.guard.limits().grad_norm, before.grad_norm);
    }
    EXPECT_EQ(g.guard.consecutive(), 2);
    g.see(outcome(2, 2));
    EXPECT_EQ(g.guard.consecutive(), 0);
    EXPECT_EQ(g.guard.skipped(), 2);
}

TEST(UpdateGuard, TheLineNamesStepFiguresLimitsAndTheBatch) {
    Guarded g(kZscore);
    StepState s = outcome(9, 2, kHighLoss);
    s.loss_limit = 4.5f;
    const std::string line = g.see(s).value();
    const auto first = g.run.data.location(0), second = g.run.data.location(4);
    EXPECT_EQ(line,
              concat("step 1 of 8: update skipped, loss 9 (limit 4.5), gradient norm 2; micro-batches: ",
                     g.tiny / "train.bin", " from token ", first.offset, ", ", second.offset,
                     "; 1 in a row, 1 in all"));
}

TEST(UpdateGuard, TooManySkipsInARowEndTheRun) {
    Guarded g(kZscore + Overrides{"train.max_skips=2"});
    const StepState high = outcome(9, 2, kHighLoss);
    for (int round = 0; round < 2; ++round) {
        g.see(high);
        g.see(high);
        g.see(outcome(1, 1));
    }
    g.see(high);
    g.see(high);
    expect_error(Exit::non_finite, {"step 9 of 8", "3 in a row", "train.max_skips = 2"},
                 [&] { g.see(high); });
}

TEST(UpdateGuard, ItsStateSurvivesACheckpoint) {
    Guarded g(kZscore);
    for (const float loss : {0.1f, 1.0f / 3, 3.3f, 4.7f}) g.see(outcome(loss, loss * loss));
    g.see(outcome(kNaN, kNaN, kNonFinite));
    UpdateGuard other(g.run.session.config().train);
    other.restore(nlohmann::json::parse(g.guard.to_json().dump()), "here");
    EXPECT_EQ(other.limits().loss, g.guard.limits().loss);
    EXPECT_EQ(other.limits().grad_norm, g.guard.limits().grad_norm);
    EXPECT_EQ(other.consecutive(), 1);
    EXPECT_EQ(other.skipped(), 1);
    UpdateGuard fresh(g.run.session.config().train);
    fresh.restore(nlohmann::json::object(), "an older manifest");
    EXPECT_EQ(fresh.limits().loss, StepState::kNoLimit);
}

TEST(UpdateGuard, ADamagedStateIsRefused) {
    const UpdateGuard whole(TrainConfig{});
    for (const char* patch :
         {R"({"losses": [1]})", R"({"losses": 5})", R"({"losses": ["x"], "grad_norms": ["x"]})",
          R"({"losses": null})", R"({"losses": [1e300], "grad_norms": [1]})", R"({"consecutive": -1})",
          R"({"skipped": 1.5})", R"({"skipped": "many"})"}) {
        nlohmann::json extra = whole.to_json();
        extra["update_guard"].merge_patch(nlohmann::json::parse(patch));
        UpdateGuard guard(TrainConfig{});
        expect_error(Exit::data, {"manifest.json", "update_guard"},
                     [&] { guard.restore(extra, "manifest.json"); });
    }
    nlohmann::json wrong = {{"update_guard", 7}};
    UpdateGuard guard(TrainConfig{});
    expect_error(Exit::data, {"update_guard"}, [&] { guard.restore(wrong, "m"); });
}

TEST(SkippedStep, ChangesNothing) {
    const TinyRun tiny;
    TinyTraining run(tiny.config());
    const TrainingMemory& m = run.session.memory();
    train_step(run.training, 0);
    for (const auto& [limits, reason] :
         {std::pair{UpdateLimits{1.0f, 1e9f}, kHighLoss}, std::pair{UpdateLimits{1e9f, 1e-3f}, kHighNorm}}) {
        const std::vector<float> p = run.copy(m.model.params), m1 = run.copy(m.moment1),
                                 m2 = run.copy(m.moment2);
        EXPECT_EQ(train_step(run.training, 1, limits).skip, reason);
        EXPECT_TRUE(run.copy(m.model.params) == p && run.copy(m.moment1) == m1 && run.copy(m.moment2) == m2);
    }
    EXPECT_EQ(train_step(run.training, 1, {1e9f, 1e9f}).skip, kNotSkipped);
}

std::vector<nlohmann::json> skipped_records(const std::string& run) {
    std::vector<nlohmann::json> found;
    for (const auto& record : read_metrics(run + "/metrics.jsonl"))
        if (record.contains("skipped")) found.push_back(record);
    return found;
}

void expect_resumes_alike(const TinyRun& tiny, const std::string& run, int64_t steps) {
    const Outcome whole = outcome_of(run, steps);
    for (const int64_t from : {6, 12}) {
        for (int64_t later = from + 1; later <= steps; ++later)
            std::filesystem::remove_all(checkpoint_of(run, later));
        ASSERT_TRUE(std::filesystem::exists(checkpoint_of(run, from)));
        EXPECT_EQ(resume_run(run, {"train.stop_after=0"}), Exit::ok);
        expect_same(whole, outcome_of(run, steps), concat(tiny.path(), ", resumed after step ", from));
    }
}

// All text is one letter but for a window of every byte: a model that has learned the letter is surprised.
TEST(SkippedStep, ASpikeIsSkippedAndAResumeSkipsTheSame) {
    const TinyRun tiny;
    std::string text(1500, 'a');
    for (int i = 0; i < 32; ++i) text[size_t(10 * 32 + i)] = char(i * 8 + 1);
    TinyRun::write_tokens(tiny / "train.bin", text);
    const Overrides more = {"train.steps=20", "train.skip_zscore=2", "train.skip_window=4",
                            "train.eval_every=0", "log.every=7"};
    EXPECT_EQ(start_run(tiny.config(more), tiny / "run"), Exit::ok);
    const auto skipped = skipped_records(tiny / "run");
    ASSERT_FALSE(skipped.empty());
    for (const auto& record : skipped) {
        EXPECT_EQ(record["skipped"], true);
        EXPECT_NE(record["reason"], "non_finite") << record;
        EXPECT_NE(read_bytes(tiny / "run/log.txt")
                      .find(concat("step ", record["step"].get<int>() + 1, " of 20: update skipped")),
                  std::string::npos);
    }
    expect_resumes_alike(tiny, tiny / "run", 20);
}

/// A run up to step 3 whose checkpoint then gets a NaN where token 255 is embedded; the data has it once.
std::string run_with_a_bad_token(const TinyRun& tiny, const std::string& name, const Overrides& overrides) {
    std::string text = read_bytes(QUARTET2_SOURCE_DIR "/data/demo.txt").substr(2000, 1500);
    text[700] = char(255);
    TinyRun::write_tokens(tiny / "train.bin", text);
    const Overrides all = Overrides{"train.steps=20", "train.eval_every=0"} + overrides;
    EXPECT_EQ(start_run(tiny.config(all + Overrides{"train.stop_after=3"}), tiny / name), Exit::ok);
    TinyTraining edited(tiny.config(all + Overrides{"train.stop_after=3"}));
    edited.session.load(checkpoint_of(tiny / name, 3));
    edited.weights("model.embed_tokens.weight")[255 * 128 + 7] = kNaN;
    edited.save(tiny / name, 3);
    return tiny / name;
}

TEST(SkippedStep, ABatchThatIsNotFiniteIsSkippedAndTheRunGoesOn) {
    const TinyRun tiny;
    const std::string run = run_with_a_bad_token(tiny, "run", {"train.non_finite=skip"});
    EXPECT_EQ(resume_run(run, {"train.stop_after=0"}), Exit::ok);
    const auto skipped = skipped_records(run);
    ASSERT_FALSE(skipped.empty());
    EXPECT_LE(skipped.size(), 4u) << "once an epoch";
    for (const auto& record : skipped) {
        EXPECT_TRUE(record["loss"].is_null()) << record;
        EXPECT_EQ(record["reason"], "non_finite");
    }
    TinyTraining after(tiny.config());
    after.session.load(checkpoint_of(run, 20));
    const Tensor& params = after.session.memory().model.params;
    int64_t bad = 0;
    for (const float x : after.copy(params)) bad += !std::isfinite(x);
    EXPECT_EQ(bad, 1) << "the planted one";
    expect_resumes_alike(tiny, run, 20);
}

TEST(SkippedStep, TheSameBatchStopsARunThatMayNotSkip) {
    const TinyRun tiny;
    for (const auto& [name, overrides] :
         {std::pair{"stop", Overrides{}},
          std::pair{"none", Overrides{"train.non_finite=skip", "train.max_skips=0"}}}) {
        const std::string run = run_with_a_bad_token(tiny, name, overrides);
        expect_error(Exit::non_finite, {"of 20", "The weight model.embed_tokens.weight holds 1 values"},
                     [&] { resume_run(run, {"train.stop_after=0"}); });
        EXPECT_EQ(resume_run(run, {"train.stop_after=0", "train.non_finite=skip", "train.max_skips=5"}),
                  Exit::ok);
    }
}

}  // namespace
}  // namespace q2::test
