// quartet2 eval: the training's own validation loss again, on other data, and what is refused.
#include <cmath>

#include "tests/support/program.h"
#include "tests/support/tiny_run.h"
#include "train/trainer.h"

namespace q2::test {
namespace {

class EvalCommand : public testing::Test {
  protected:
    TinyRun tiny_;
    const std::string run_ = tiny_ / "run";

    void train(const Overrides& overrides = {}) {
        ASSERT_EQ(start_run(tiny_.config(overrides), run_), Exit::ok);
    }
    nlohmann::json report(const Overrides& arguments = {}) {
        const Finished f = run_program(Overrides{"eval", run_, "--json"} + arguments);
        EXPECT_EQ(f.code, 0) << f.err;
        EXPECT_EQ(f.err, "");
        return nlohmann::json::parse(f.out);
    }
};

TEST_F(EvalCommand, IsTheLossThatTrainingSaw) {
    train({"precision.switch=[{\"at\": 5, \"recipe\": \"nvidia\"}]"});
    const nlohmann::json last = read_metrics(run_ + "/metrics.jsonl").back();
    EXPECT_EQ(report(), last);
    const Finished text = run_program({"eval", run_});
    EXPECT_EQ(text.code, 0);
    char loss[32];
    std::snprintf(loss, sizeof loss, "%.4f", last["val_loss"].get<double>());
    EXPECT_NE(text.out.find(checkpoint_of(run_, 8)), std::string::npos) << text.out;
    EXPECT_NE(text.out.find(loss), std::string::npos) << text.out;
}

TEST_F(EvalCommand, TakesOtherData) {
    train();
    const double own = report()["val_loss"];
    EXPECT_EQ(report({"--data", tiny_ / "val.bin"})["val_loss"], own);
    EXPECT_LT(report({"--data", tiny_ / "train.bin"})["val_loss"], own) << "what it was trained on";
}

TEST_F(EvalCommand, Refuses) {
    expect_failure({"eval", run_}, Exit::data, {run_, "no such run"});
    train({"train.steps=1", "train.eval_every=0", "data.val=[]"});
    expect_failure({"eval", run_}, Exit::config, {"data.val is empty", "--data"});
    expect_failure({"eval", run_, "--data", tiny_ / "none"}, Exit::data, {tiny_ / "none"});
    std::filesystem::remove_all(run_ + "/checkpoints");
    expect_failure({"eval", run_, "--data", tiny_ / "val.bin"}, Exit::data, {run_, "no checkpoint"});
}

TEST_F(EvalCommand, SkipsADamagedCheckpointAndSaysSo) {
    train();
    write_bytes(checkpoint_of(run_, 8) + "/model.safetensors", "");
    const Finished f = run_program({"eval", run_, "--json"});
    EXPECT_EQ(f.code, 0) << f.err;
    EXPECT_EQ(nlohmann::json::parse(f.out)["step"], 5);
    EXPECT_NE(f.err.find("Skipped " + checkpoint_of(run_, 8)), std::string::npos) << f.err;
}

}  // namespace
}  // namespace q2::test
