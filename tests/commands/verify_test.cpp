// quartet2 verify on good and damaged runs, checkpoints, token files and safetensors files.
#include "commands/verify.h"

#include "tests/support/program.h"
#include "tests/support/tiny_training.h"
#include "train/trainer.h"

namespace q2::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

void flip_last_bit(const std::string& path) {
    std::string bytes = read_bytes(path);
    bytes.back() ^= 1;
    write_bytes(path, bytes);
}

/// Of the program: its output, which must be one object with this verdict and this exit code.
Json report_of(const std::vector<std::string>& arguments, bool good) {
    const Finished f = run_program(Overrides{"verify", "--json"} + arguments);
    EXPECT_EQ(f.code, good ? 0 : int(Exit::data)) << f.err;
    EXPECT_EQ(f.err, "");
    const Json report = Json::parse(f.out);
    EXPECT_EQ(report["good"], good) << f.out;
    return report;
}

/// The problem of the part with this path.
std::string problem_of(const Json& report, const std::string& path) {
    for (const Json& p : report["parts"])
        if (p["path"] == path) return p.value("problem", "");
    return "no part " + path;
}

TEST(Verify, ARunWithEachOfItsCheckpoints) {
    const TinyRun tiny;
    const std::string run = tiny / "run";
    ASSERT_EQ(start_run(tiny.config({"train.steps=4", "checkpoint.every=2"}), run), Exit::ok);
    const Json good = report_of({run}, true);
    EXPECT_EQ(good["kind"], "run");
    EXPECT_EQ(good["parts"].size(), 4u) << "config, metrics and two checkpoints: " << good;
    EXPECT_EQ(good["parts"][2]["step"], 4) << good;

    flip_last_bit(checkpoint_of(run, 2) + "/optimizer.safetensors");
    const Json damaged = report_of({run}, false);
    EXPECT_NE(problem_of(damaged, checkpoint_of(run, 2)).find("its checksum differs"), std::string::npos);
    EXPECT_EQ(problem_of(damaged, checkpoint_of(run, 4)), "");
    EXPECT_EQ(damaged["parts"].size(), 4u) << "the good one still counts: " << damaged;
    report_of({checkpoint_of(run, 4)}, true);
    EXPECT_EQ(report_of({checkpoint_of(run, 2)}, false)["kind"], "checkpoint");

    const Finished text = run_program({"verify", run});
    EXPECT_EQ(text.code, int(Exit::data));
    EXPECT_NE(text.out.find("good  " + checkpoint_of(run, 4)), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("BAD   " + checkpoint_of(run, 2) + "/optimizer"), std::string::npos) << text.out;
}

TEST(Verify, WhatASaveLeftIsNoCheckpoint) {
    const TinyRun tiny;
    const std::string run = tiny / "run";
    ASSERT_EQ(start_run(tiny.config({"train.steps=1"}), run), Exit::ok);
    fs::create_directory(checkpoint_of(run, 9) + ".tmp");
    EXPECT_TRUE(report_of({run}, true)["parts"][2]["good"].is_null());
    fs::rename(checkpoint_of(run, 1), checkpoint_of(run, 1) + ".tmp");
    EXPECT_EQ(problem_of(report_of({run}, false), run + "/checkpoints"), "no good checkpoint");
    write_bytes(run + "/metrics.jsonl", "[]\n");
    write_bytes(run + "/config.json", "{\"model\": {\"hedas\": 2}}");
    const Json report = report_of({run}, false);
    EXPECT_NE(problem_of(report, run + "/metrics.jsonl").find("metrics.jsonl:1"), std::string::npos);
    EXPECT_NE(problem_of(report, run + "/config.json").find("did you mean"), std::string::npos);
}

TEST(Verify, ATokenFileWithEveryToken) {
    const TempFolder folder;
    const std::string path = folder / "tokens.bin";
    AtomicFile file(path);
    std::vector<uint16_t> tokens(3'000'000, 7);
    tokens.back() = 300;
    write_token_header(file, 2, int64_t(tokens.size()));
    file.write(tokens.data(), tokens.size() * 2);
    file.commit();
    EXPECT_EQ(report_of({path}, true)["kind"], "tokens");
    report_of({path, "--vocab", "301"}, true);
    const std::string problem = problem_of(report_of({path, "--vocab", "300"}, false), path);
    EXPECT_NE(problem.find("token 300 at position 2999999"), std::string::npos) << problem;
    report_of({path, "--format", "uint16"}, false);
    report_of({path, "--vocab", "100000"}, false);
    fs::resize_file(path, 5000);
    EXPECT_NE(problem_of(report_of({path}, false), path).find("announces 3000000 tokens"), std::string::npos);
    TinyRun::write_tokens(path, "abc");
    report_of({path}, false);
    report_of({path, "--format", "uint16", "--vocab", "256"}, true);
}

TEST(Verify, ASafetensorsFile) {
    const TempFolder folder;
    const std::string path = folder / "x.safetensors";
    std::vector<float> values(6, 1.0f);
    save_tensors(path, std::vector<NamedTensor>{{"w", Dtype::f32, {2, 3}, values.data()}});
    EXPECT_EQ(report_of({path}, true)["kind"], "safetensors");
    fs::resize_file(path, fs::file_size(path) - 1);
    report_of({path}, false);
}

TEST(Verify, NamesWhatCannotBeVerified) {
    const TempFolder folder;
    expect_failure({"verify", folder / "none"}, Exit::data, {folder / "none", "no such file"});
    expect_failure({"verify", folder.path()}, Exit::data, {folder.path(), "neither a run"});
    expect_failure({"verify"}, Exit::usage, {"PATH"});
}

}  // namespace
}  // namespace q2::test
