// quartet2 generate: prompts, seeds and sampling options are honoured, and what is refused.
#include <set>

#include "tests/support/program.h"
#include "tests/support/tiny_run.h"
#include "train/trainer.h"

namespace q2::test {
namespace {

class GenerateCommand : public testing::Test {
  protected:
    TinyRun tiny_;
    const std::string run_ = tiny_ / "run";

    void train(const Overrides& overrides = {}) {
        ASSERT_EQ(start_run(tiny_.config(overrides + Overrides{"train.steps=2"}), run_), Exit::ok);
    }
    std::string text(const Overrides& arguments) {
        const Finished f = run_program(Overrides{"generate", run_, "--tokens", "20"} + arguments);
        EXPECT_EQ(f.code, 0) << f.err;
        EXPECT_EQ(f.err, "");
        return f.out;
    }
};

TEST_F(GenerateCommand, ContinuesThePromptBySeedAndOptions) {
    train();
    const std::string one = text({"--prompt", "It is a "});
    EXPECT_TRUE(one.starts_with("It is a "));
    EXPECT_EQ(one.size(), 8 + 20 + 1u);
    EXPECT_EQ(text({"--prompt", "It is a "}), one);
    const std::set<std::string> different = {one, text({"--prompt", "It is a ", "--seed", "1"}),
                                             text({"--prompt", "It is a ", "--temperature", "3"}),
                                             text({"--prompt", "It is a ", "--top-k", "2"}),
                                             text({"--prompt", "It is a ", "--top-p", "0.05"})};
    EXPECT_EQ(different.size(), 5u);
    const std::string greedy = text({"--prompt", "It", "--temperature", "0"});
    EXPECT_EQ(text({"--prompt", "It", "--temperature", "0", "--seed", "5"}), greedy);
    EXPECT_EQ(text({"--prompt", "It", "--top-k", "1", "--seed", "6"}), greedy);
    EXPECT_EQ(text({"--ids", "73", "116", "--temperature", "0"}), greedy);
    EXPECT_EQ(text({}).substr(0, 1), "\n") << "without a prompt";
}

// The context is the last 32 tokens, whatever stands before them or, in a short one, behind.
TEST_F(GenerateCommand, LongPromptsKeepTheirEnd) {
    train({"precision.recipe=bf16"});
    const std::string end = "abcdefghijklmnopqrstuvwxyz012345";
    const auto next = [&](const std::string& prompt) {
        return text({"--prompt", prompt, "--temperature", "0"}).substr(prompt.size());
    };
    EXPECT_EQ(next("Something else. " + end), next(end));
}

TEST_F(GenerateCommand, PrintsIdsWhereTokensAreNotBytes) {
    train({"data.tokenizer=none"});
    const std::string ids = text({"--ids", "7", "8"});
    EXPECT_TRUE(ids.starts_with("7 8 ")) << ids;
    EXPECT_EQ(std::count(ids.begin(), ids.end(), ' '), 22);
    expect_failure({"generate", run_, "--prompt", "It"}, Exit::usage, {"--prompt", "--ids"});
}

TEST_F(GenerateCommand, Refuses) {
    expect_failure({"generate", run_}, Exit::data, {run_, "no such run"});
    train();
    for (const std::string id : {"256", "2000000000", "-1"})
        expect_failure({"generate", run_, "--ids=" + id}, Exit::usage, {"--ids", id, "0 to 255"});
    expect_failure({"generate", run_, "--ids", "x"}, Exit::usage, {"--ids", "x"});
    expect_failure({"generate", run_, "--tokens", "0"}, Exit::usage, {"--tokens"});
    expect_failure({"generate", run_, "--temperature", "-1"}, Exit::usage, {"temperature is -1"});
    expect_failure({"generate", run_, "--top-k", "-1"}, Exit::usage, {"top_k is -1"});
    expect_failure({"generate", run_, "--top-p", "0"}, Exit::usage, {"top_p is 0"});
    std::filesystem::remove_all(run_ + "/checkpoints");
    expect_failure({"generate", run_}, Exit::data, {run_, "no checkpoint"});
}

}  // namespace
}  // namespace q2::test
