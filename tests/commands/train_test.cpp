// quartet2 train as a user runs it: stopped by a signal and resumed, and every bad input refused in one line
// before anything is written.
#include <chrono>
#include <thread>

#include "tests/support/program.h"
#include "tests/support/tiny_training.h"

namespace q2::test {
namespace {

namespace fs = std::filesystem;

/// "--set" before each override.
Overrides sets(const Overrides& overrides) {
    Overrides arguments;
    for (const std::string& o : overrides) arguments = arguments + Overrides{"--set", o};
    return arguments;
}

void expect_trained(const Overrides& arguments) {
    const Finished f = run_program(Overrides{"train"} + arguments);
    EXPECT_EQ(f.code, 0) << f.err;
    EXPECT_EQ(f.err, "");
}

size_t lines_of(const std::string& path) {
    const std::string text = read_bytes(path);
    return size_t(std::count(text.begin(), text.end(), '\n'));
}

TEST(TrainCommand, ASignalStopsItAtACheckpointAndItGoesOnToTheSameBits) {
    const TinyRun tiny;
    const Overrides longer =
        sets({"train.steps=120", "checkpoint.every=0", "train.eval_every=50", "train.threads=2"});
    const std::string whole = tiny / "whole", stopped = tiny / "stopped";
    expect_trained(Overrides{tiny.config_path(), "--out", whole} + longer);
    Overrides resume = Overrides{tiny.config_path(), "--out", stopped} + longer;
    for (const int signal : {SIGINT, SIGTERM}) {
        const size_t lines = lines_of(stopped + "/metrics.jsonl");
        Program program(Overrides{"train"} + resume);
        while (lines_of(stopped + "/metrics.jsonl") < lines + 5 && program.running())
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        program.send(signal);
        const Finished f = program.wait();
        EXPECT_EQ(f.code, int(Exit::interrupted)) << f.err;
        EXPECT_NE(f.out.find("train --resume " + stopped), std::string::npos) << f.out;
        EXPECT_FALSE(fs::exists(checkpoint_of(stopped, 120))) << "finished before the signal came";
        resume = {"--resume", stopped};
    }
    expect_trained(resume);
    expect_same(outcome_of(whole, 120), outcome_of(stopped, 120), "stopped twice");
}

TEST(TrainCommand, BadConfigsAreRefusedInOneLineAndNothingIsWritten) {
    const TinyRun tiny;
    const std::string file = tiny.config_path(), run = tiny / "run";
    const auto refused = [&](const Overrides& overrides, Exit code,
                             std::initializer_list<std::string> parts) {
        expect_failure(Overrides{"train", file, "--out", run} + sets(overrides), code, parts);
        EXPECT_FALSE(fs::exists(run));
    };
    refused({"model.hedas=2"}, Exit::config, {"model.hedas", "did you mean model.heads"});
    refused({"model.layers=two"}, Exit::config, {"model.layers", "two", "integer"});
    refused({"model.layers=0"}, Exit::config, {"model.layers = 0", "1 to 1024"});
    refused({"optimizer.lr=-1"}, Exit::config, {"optimizer.lr = -1", "must be 1e-30 to 1e+30"});
    refused({"precision.recipe=quartet3"}, Exit::config, {"quartet3", "did you mean quartet2"});
    refused({"precision.recipe={\"base\": \"quartet2\", \"dgrad\": {\"a\": {\"rond\": \"nearest\"}}}"},
            Exit::config, {"rond", "did you mean", "round"});
    refused({"model.width=192"}, Exit::config, {"model.width = 192", "128 and 256"});
    refused({"model.heads=3"}, Exit::config, {"model.heads = 3", "must divide model.width = 128"});
    refused({"model.mlp=100"}, Exit::config, {"model.mlp = 100"});
    refused({"data.train=[]"}, Exit::config, {"data.train is empty"});
    refused({"train.backend=gpu"}, Exit::config, {"train.backend", "auto, cpu, cuda"});
    refused({"parallel.gpus=2"}, Exit::config, {"parallel.gpus = 2"});
    refused({"model.layers"}, Exit::usage, {"model.layers", "key=value"});
    const std::string missing = tiny / "missing.bin";
    refused({"data.train=[\"" + missing + "\"]"}, Exit::data, {missing});
    refused({"data.val=[\"" + missing + "\"]"}, Exit::data, {missing});
    refused({"data.sequence=1500"}, Exit::data, {"train.bin", "data.sequence + 1 = 1501", "1500"});
    refused({"data.sequence=400"}, Exit::data, {"val.bin", "data.sequence + 1 = 401"});
    refused({"model.vocab=100"}, Exit::data, {"train.bin", "token 1", "position", "model.vocab = 100"});
    refused({"data.format=auto"}, Exit::data, {"train.bin"});
}

TEST(TrainCommand, BadFilesAndFoldersAreRefusedInOneLineAndNothingIsWritten) {
    const TinyRun tiny;
    const std::string run = tiny / "run", broken = tiny / "broken.json", file = tiny / "file";
    const auto refused = [&](const Overrides& arguments, Exit code,
                             std::initializer_list<std::string> parts) {
        expect_failure(Overrides{"train"} + arguments, code, parts);
        EXPECT_FALSE(fs::exists(run));
    };
    refused({tiny / "none.json", "--out", run}, Exit::data, {tiny / "none.json"});
    refused({tiny.path(), "--out", run}, Exit::data, {tiny.path()});
    for (const char* text :
         {"", "{\"model\": ", "\x01\x02", "{} {}", "{\"train\": {\"steps\": 1, \"steps\": 2}}"}) {
        write_bytes(broken, text);
        refused({broken, "--out", run}, Exit::data, {broken});
    }
    for (const char* text : {"[]", "3", "{\"model\": 3}", "{\"model\": {\"width\": null}}"}) {
        write_bytes(broken, text);
        refused({broken, "--out", run}, Exit::config, {broken});
    }
    refused({}, Exit::usage, {"CONFIG or --resume"});
    refused({tiny.config_path(), "--frobnicate"}, Exit::usage, {"--frobnicate"});
    refused({"--resume", tiny / "none"}, Exit::data, {tiny / "none", "no such run"});
    refused({"--resume", tiny.path()}, Exit::data, {"config.json"});
    write_bytes(file, "");
    refused({tiny.config_path(), "--out", file}, Exit::usage, {file + " exists"});
    refused({tiny.config_path(), "--out", file + "/run"}, Exit::data, {file + "/run", "cannot"});
    refused({tiny.config_path(), "--out", tiny / std::string(300, 'x')}, Exit::data, {"xxx", "cannot"});
}

TEST(TrainCommand, AResumeKeepsWhatDecidesTheResults) {
    const TinyRun tiny;
    const std::string run = tiny / "run";
    expect_trained({tiny.config_path(), "--out", run, "--set", "train.steps=1"});
    const Outcome before = outcome_of(run, 1);
    expect_failure({"train", "--resume", run, "--set", "optimizer.lr=1"}, Exit::usage,
                   {"--set optimizer.lr=1", "log.*"});
    expect_failure({"train", "--resume", run, "--out", tiny / "other"}, Exit::usage, {"--out"});
    expect_failure({"train", tiny.config_path(), "--out", run}, Exit::usage, {run + " exists"});
    expect_trained({"--resume", run, "--set", "train.threads=2", "--set", "log.every=2"});
    expect_same(before, outcome_of(run, 1), "a run that was finished");
}

TEST(TrainCommand, ANaNInACheckpointStopsTheRun) {
    const TinyRun tiny;
    const std::string run = tiny / "run";
    expect_trained({tiny.config_path(), "--out", run, "--set", "train.steps=8"});
    TinyTraining edited(tiny.config());
    edited.session.load(checkpoint_of(run, 3));
    edited.weights("model.layers.1.self_attn.o_proj.weight")[9] = NAN;
    edited.save(run, 3);
    for (const int64_t step : {6, 8}) fs::remove_all(checkpoint_of(run, step));
    const std::string before = read_bytes(checkpoint_of(run, 3) + "/model.safetensors");
    const Finished f = run_program({"train", "--resume", run});
    EXPECT_EQ(f.code, int(Exit::non_finite));
    for (const char* part : {"step 4 of ", "model.layers.1.self_attn.o_proj.weight", "not finite"})
        EXPECT_NE(f.err.find(part), std::string::npos) << f.err;
    EXPECT_EQ(std::count(f.err.begin(), f.err.end(), '\n'), 1) << f.err;
    EXPECT_TRUE(read_bytes(checkpoint_of(run, 3) + "/model.safetensors") == before);
    EXPECT_FALSE(fs::exists(checkpoint_of(run, 6)));
    EXPECT_EQ(losses_of(run).size(), 3u) << "the bad step has no record";
}

TEST(TrainCommand, HelpListsWhatEveryCommandTakes) {
    const Finished all = run_program({"--help"});
    EXPECT_EQ(all.code, 0);
    const std::map<std::string, std::vector<std::string>> takes = {
        {"train", {"CONFIG", "--out", "--resume", "--set"}},
        {"eval", {"RUN", "--data", "--json"}},
        {"generate",
         {"RUN", "--prompt", "--ids", "--tokens", "--temperature", "--top-k", "--top-p", "--seed"}},
        {"compare", {"RUN", "--json", "--svg"}},
        {"verify", {"PATH", "--vocab", "--format", "--json"}},
        {"tokenize", {"INPUT", "--out", "--val", "--val-fraction"}},
        {"config", {"CONFIG", "--set", "--markdown"}}};
    for (const auto& [command, options] : takes) {
        EXPECT_NE(all.out.find("  " + command + " "), std::string::npos) << all.out;
        const Finished f = run_program({command, "--help"});
        EXPECT_EQ(f.code, 0);
        EXPECT_EQ(f.err, "");
        for (const std::string& option : options)
            EXPECT_NE(f.out.find("  " + option), std::string::npos) << f.out << "lacks " << option;
    }
    expect_failure({}, Exit::usage, {"subcommand"});
    expect_failure({"trian"}, Exit::usage, {"trian"});
}

}  // namespace
}  // namespace q2::test
