// Malformed inputs as a user meets them: exit code, one line on stderr, nothing left behind.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/program.h"
#include "tests/support/tiny_run.h"
#include "train/trainer.h"

namespace q2::test {
namespace {

TEST(HostileProgram, Config) {
    const TempFolder folder;
    ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
    write_bytes(folder / "bom.json", "\xef\xbb\xbf{\"model\": {\"hedas\": 3}}");
    for (const char* command : {"train", "config", "plan"}) {
        expect_failure({command, folder / "pipe"}, Exit::data, {"pipe: not a regular file (a pipe"});
        expect_failure({command, folder.path()}, Exit::data, {": is a folder, not a regular file"});
        expect_failure({command, folder / "bom.json"}, Exit::config,
                       {"model.hedas: no such key; did you mean"});
    }
}

TEST(HostileProgram, TokenizerIsReadBeforeTheRunIsMade) {
    const TinyRun tiny;
    const std::string bad = tiny / "tokenizer.json";
    const std::vector<std::string> train = {"train", tiny.config_path(),     "--out", tiny / "run",
                                            "--set", "data.tokenizer=" + bad};
    expect_failure(train, Exit::data, {bad, "no such file; data.tokenizer must be bytes, none, or"});
    write_bytes(bad, R"({"model": {"vocab": {"a": 256}}})");
    expect_failure(train, Exit::data, {bad, "token \"a\" has the id 256, not 0 to 255; raise model.vocab"});
    EXPECT_FALSE(std::filesystem::exists(tiny / "run"));
    write_bytes(bad, R"({"model": {"vocab": {"a": 255}}})");
    start_run(tiny.config({"data.tokenizer=" + bad, "train.steps=1"}), tiny / "run");
    std::filesystem::remove(bad);
    for (const char* command : {"eval", "generate"})
        expect_failure({command, tiny / "run"}, Exit::data, {bad, "no such file; data.tokenizer must be"});
    expect_failure({"train", "--resume", tiny / "run"}, Exit::data, {bad, "no such file"});
    EXPECT_EQ(run_program({"plan", tiny / "run/config.json"}).code, 0) << "a plan needs no files";
}

TEST(HostileProgram, Run) {
    const TinyRun tiny;
    const std::string run = tiny / "run";
    start_run(tiny.config({"train.steps=1"}), run);
    for (const char* id : {"256", "-1"})
        expect_failure({"generate", run, std::string("--ids=") + id}, Exit::usage,
                       {std::string("--ids: ") + id + " is no token of the model, 0 to 255"});
    expect_failure({"generate", run, "--ids", "1", "--prompt", "a"}, Exit::usage, {"--prompt", "--ids"});
    std::filesystem::remove(run + "/metrics.jsonl");
    ASSERT_EQ(::mkfifo((run + "/metrics.jsonl").c_str(), 0600), 0);
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"train", "--resume", run}, {"telemetry", run}})
        expect_failure(command, Exit::data, {"metrics.jsonl: not a regular file (a pipe"});
    write_bytes(checkpoint_of(run, 1) + "/manifest.json", "{}");
    EXPECT_EQ(run_program({"eval", run}).code, int(Exit::data));
}

}  // namespace
}  // namespace q2::test
