// How a run ends before its time, as a user sees it: signals, the time limit, a closed pipe, a full quota, a
// second training; and that the run then goes on as if nothing had been.
#include <signal.h>

#include <chrono>
#include <thread>

#include "tests/faults/survival.h"

namespace q2::test {
namespace {

namespace fs = std::filesystem;

size_t lines_of(const std::string& path) {
    const std::string text = read_bytes(path);
    return size_t(std::count(text.begin(), text.end(), '\n'));
}

Overrides sets(const Overrides& overrides) {
    Overrides arguments;
    for (const std::string& o : overrides) arguments = arguments + Overrides{"--set", o};
    return arguments;
}

Overrides start(const TinyRun& tiny, const std::string& run, const Overrides& overrides) {
    return Overrides{"train", tiny.config_path(), "--out", run} + sets(overrides);
}

Overrides resume(const std::string& run, const Overrides& overrides = {}) {
    return Overrides{"train", "--resume", run} + sets(overrides);
}

template <class Done>
void wait_until(const Program& program, Done done) {
    while (!done() && program.running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

/// The environment that makes flushes of these files slow.
std::vector<std::string> slow_flushes(const std::string& glob, int milliseconds) {
    return with_faults(concat("fsync 1+ wait=", milliseconds * 1000, " ", glob));
}

Finished expect_code(const Overrides& arguments, Exit code) {
    Finished f = run_program(arguments);
    EXPECT_EQ(f.code, int(code)) << f.err;
    return f;
}

TEST(Ends, ASignalInAnEvaluationLeavesItToTheResume) {
    const TinyRun tiny;
    const std::string text = read_bytes(QUARTET2_SOURCE_DIR "/data/demo.txt");
    TinyRun::write_tokens(tiny / "val.bin", text.substr(0, 32 * 1000));
    const Overrides settings = {"train.steps=4", "train.eval_every=2", "train.eval_micro_batch=1"};
    const std::string whole = tiny / "whole", stopped = tiny / "stopped";
    expect_code(start(tiny, whole, settings), Exit::ok);
    ::signal(SIGHUP, SIG_DFL);  // inherited; nohup would have it ignored, as the program would go on to do
    // Before the second step's evaluation, then in the last one's, which the run is not complete without.
    Overrides command = start(tiny, stopped, settings);
    for (const size_t lines : {2, 5}) {
        Program program(command);
        wait_until(program, [&] { return lines_of(stopped + "/metrics.jsonl") >= lines; });
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        program.send(SIGHUP);
        const Finished f = program.wait();
        EXPECT_EQ(f.code, int(Exit::interrupted)) << f.err << f.out;
        EXPECT_EQ(lines_of(stopped + "/metrics.jsonl"), lines) << f.out;
        command = resume(stopped);
    }
    verify_checkpoint(checkpoint_of(stopped, 4));
    const Finished f = expect_code(command, Exit::ok);
    EXPECT_NE(f.out.find("step 4: validation loss"), std::string::npos) << f.out;
    expect_same(outcome_of(whole, 4), outcome_of(stopped, 4), "two evaluations interrupted");
    expect_code(command, Exit::ok);
    expect_same(outcome_of(whole, 4), outcome_of(stopped, 4), "and none is made again");
}

TEST(Ends, ASignalInTheLastSaveOfACompleteRunChangesNothing) {
    const TinyRun tiny;
    const std::string run = tiny / "run";
    const auto expect_complete = [&](const std::string& slow, auto reached) {
        fs::remove_all(run);
        Program program(start(tiny, run, {}), slow_flushes(slow, 150));
        wait_until(program, reached);
        program.send(SIGTERM);
        const Finished f = program.wait();
        EXPECT_EQ(f.code, 0) << f.err;
        EXPECT_NE(f.out.find("Saved " + checkpoint_of(run, 8)), std::string::npos) << f.out;
        verify_checkpoint(checkpoint_of(run, 8));
    };
    expect_complete("*step-00000008*", [&] { return fs::exists(checkpoint_of(run, 8) + ".tmp"); });
    // All is done, and the last save waits for the one before it.
    expect_complete("*step-00000006*", [&] { return lines_of(run + "/metrics.jsonl") == 10; });
}

TEST(Ends, ASignalInASaveWaitsForItAndSavesOnceMore) {
    const TinyRun tiny;
    const std::string whole = tiny / "whole", stopped = tiny / "stopped";
    const Overrides settings = {"train.steps=400", "checkpoint.every=3", "checkpoint.keep=0"};
    Program program(start(tiny, stopped, settings), slow_flushes("*step-00000003*", 200));
    wait_until(program, [&] { return fs::exists(checkpoint_of(stopped, 3) + ".tmp"); });
    wait_until(program, [&] { return lines_of(stopped + "/metrics.jsonl") >= 5; });  // beside the save
    EXPECT_FALSE(fs::exists(checkpoint_of(stopped, 3)));
    program.send(SIGTERM);
    const Finished f = program.wait();
    EXPECT_EQ(f.code, int(Exit::interrupted)) << f.err;
    const CheckpointSearch search = find_latest_checkpoint(stopped);
    EXPECT_GE(search.meta.step, 4);
    verify_checkpoint(checkpoint_of(stopped, 3));
    expect_code(resume(stopped, {concat("train.stop_after=", search.meta.step + 1)}), Exit::ok);
    expect_code(start(tiny, whole, settings + Overrides{concat("train.stop_after=", search.meta.step + 1)}),
                Exit::ok);
    expect_same(outcome_of(whole, search.meta.step + 1), outcome_of(stopped, search.meta.step + 1),
                "stopped");
}

TEST(Ends, TheTimeLimitSavesAndEndsWithItsOwnCode) {
    const TinyRun tiny;
    const std::string whole = tiny / "whole", run = tiny / "run";
    const Overrides settings = {"train.steps=100000", "train.eval_every=0", "checkpoint.every=0"};
    const Finished f =
        expect_code(start(tiny, run, settings + Overrides{"train.max_seconds=0.3"}), Exit::time_limit);
    EXPECT_NE(f.out.find("Stopped by train.max_seconds after step "), std::string::npos) << f.out;
    const int64_t first = find_latest_checkpoint(run).meta.step;
    EXPECT_GT(first, 0);
    expect_code(resume(run), Exit::time_limit);
    const int64_t second = find_latest_checkpoint(run).meta.step;
    EXPECT_GT(second, first);
    EXPECT_EQ(int64_t(lines_of(run + "/metrics.jsonl")), second);
    const std::string end = concat("train.stop_after=", second + 2);
    expect_code(resume(run, {"train.max_seconds=0", end}), Exit::ok);
    expect_code(start(tiny, whole, settings + Overrides{end}), Exit::ok);
    expect_same(outcome_of(whole, second + 2), outcome_of(run, second + 2), "stopped twice by the clock");
    // However short, every part of the run makes a step.
    expect_code(resume(run, {"train.max_seconds=1e-6", "train.stop_after=0"}), Exit::time_limit);
    EXPECT_EQ(find_latest_checkpoint(run).meta.step, second + 3);
}

/// Of a shell's command line; "$0" there is the program.
int shell(const std::string& line, const std::string& out) {
    const std::string command = concat("exec 2>", out, "; sh -c '", line, "' " QUARTET2_BINARY);
    return WEXITSTATUS(std::system(command.c_str()));
}

TEST(Ends, AClosedPipeDoesNotEndARun) {
    const TinyRun tiny;
    const std::string run = tiny / "run";
    shell(concat("\"$0\" train ", tiny.config_path(), " --out ", run, " | head -n 1"), tiny / "err");
    for (int i = 0; i < 2000 && !fs::exists(checkpoint_of(run, 8)); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    verify_checkpoint(checkpoint_of(run, 8));
    EXPECT_EQ(losses_of(run).size(), 8u);
    EXPECT_NE(read_bytes(run + "/log.txt").find("step 8/8"), std::string::npos);
}

TEST(Ends, AFileLimitLeavesTheFormerCheckpointGood) {
    const TinyRun tiny;
    const std::string whole = tiny / "whole", run = tiny / "run";
    expect_code(start(tiny, whole, {}), Exit::ok);
    expect_code(start(tiny, run, {"train.stop_after=3"}), Exit::ok);
    // 1500 KiB hold the weights, not the moments.
    const int code = shell(concat("ulimit -f 3000; \"$0\" train --resume ", run, " --set train.stop_after=0"),
                           tiny / "err");
    const std::string said = read_bytes(tiny / "err");
    EXPECT_EQ(code, int(Exit::data)) << said;
    for (const std::string& part : {std::string("optimizer.safetensors"), std::string("File too large"),
                                    checkpoint_of(run, 3) + " is good", "train --resume " + run})
        EXPECT_NE(said.find(part), std::string::npos) << said;
    EXPECT_NE(read_bytes(run + "/log.txt").find("File too large"), std::string::npos)
        << "for who comes later";
    EXPECT_EQ(find_latest_checkpoint(run).meta.step, 3);
    expect_code(resume(run, {"train.stop_after=0"}), Exit::ok);
    expect_same(outcome_of(whole), outcome_of(run), "mended");
}

TEST(Ends, ASecondTrainingIsKeptOutUntilTheFirstIsDead) {
    const TinyRun tiny;
    const std::string run = tiny / "run";
    Program first(start(tiny, run, {"train.steps=100000", "train.eval_every=0"}));
    wait_until(first,
               [&] { return lines_of(run + "/metrics.jsonl") >= 4 && fs::exists(checkpoint_of(run, 3)); });
    expect_failure(resume(run), Exit::usage, {run, "is training there"});
    expect_failure(start(tiny, run, {}), Exit::usage, {run + " exists"});
    EXPECT_EQ(run_program({"eval", run}).code, 0) << "readers need no lock";
    first.send(SIGKILL);
    EXPECT_EQ(first.wait().code, -1);
    const int64_t step = find_latest_checkpoint(run).meta.step;
    expect_code(resume(run, {concat("train.stop_after=", step + 1)}), Exit::ok);
}

}  // namespace
}  // namespace q2::test
