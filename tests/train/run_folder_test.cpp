// Who may work in a run's folder, and what readers meet there.
#include "train/run_folder.h"

#include <unistd.h>

#include "tests/support/tiny_training.h"
#include "train/trainer.h"

namespace q2::test {
namespace {

namespace fs = std::filesystem;

TEST(RunLock, IsHeldByOne) {
    const TempFolder run;
    {
        const RunLock first(run.path());
        expect_error(Exit::usage, {run.path(), concat("process ", ::getpid(), " is training")},
                     [&] { RunLock(run.path()); });
        const TempFolder other;
        RunLock(other.path());
    }
    RunLock(run.path());
    EXPECT_TRUE(fs::exists(run / "lock")) << "left, and held by nobody";
    write_bytes(run / "lock", "999999999999\nand more");
    RunLock(run.path());
    EXPECT_EQ(read_bytes(run / "lock"), concat(::getpid(), "\n"));
}

TEST(RunLock, NamesAFolderThatCannotBeWritten) {
    const TempFolder run;
    expect_error(Exit::data, {run / "none/lock", "cannot be written"}, [&] { RunLock(run / "none"); });
    fs::create_directory(run / "lock");
    expect_error(Exit::data, {run / "lock", "cannot be written"}, [&] { RunLock(run.path()); });
}

TEST(RunFolder, TwoTrainingsOfOneRunDoNotMix) {
    const TinyRun tiny;
    const std::string run = tiny / "run";
    ASSERT_EQ(start_run(tiny.config({"train.steps=2", "train.stop_after=1"}), run), Exit::ok);
    const std::string before = read_bytes(run + "/metrics.jsonl");
    {
        const RunLock other(run);
        expect_error(Exit::usage, {run, "is training there"}, [&] { resume_run(run, {}); });
        fs::create_directory(tiny / "new");
        const RunLock starting(tiny / "new");
        expect_error(Exit::usage, {tiny / "new", "is training there"},
                     [&] { start_run(tiny.config(), tiny / "new"); });
    }
    EXPECT_EQ(read_bytes(run + "/metrics.jsonl"), before);
    EXPECT_EQ(resume_run(run, {}), Exit::ok);
}

TEST(RunFolder, ACheckpointThatItsTrainingRemovedIsToldOf) {
    const TinyRun tiny;
    const std::string run = tiny / "run";
    ASSERT_EQ(start_run(tiny.config({"train.steps=2", "checkpoint.every=1"}), run), Exit::ok);
    const RunCheckpoint newest = open_run(run);
    Session reader(newest.config, 1);
    load_checkpoint(reader, newest);
    fs::remove(newest.folder + "/model.safetensors");
    expect_error(Exit::data, {"model.safetensors", "cannot be opened"},
                 [&] { load_checkpoint(reader, newest); });
    fs::remove_all(newest.folder);
    expect_error(Exit::data, {newest.folder, "removed it for a newer one", "run the command again"},
                 [&] { load_checkpoint(reader, newest); });
}

// A run of format version 1 (tests/golden/format_1, of 4 steps, stopped after 2) goes on.
TEST(RunFolder, AnOldFormatIsResumed) {
    const TempFolder folder;
    fs::copy(QUARTET2_SOURCE_DIR "/tests/golden/format_1", folder.path(), fs::copy_options::recursive);
    const fs::path before = fs::current_path();
    fs::current_path(folder.path());  // its config names tokens.bin
    const Config config = load_config("run/config.json", {"train.stop_after=0"});
    const Exit whole = start_run(config, "whole"), resumed = resume_run("run", {"train.stop_after=0"});
    fs::current_path(before);
    ASSERT_EQ(whole, Exit::ok);
    ASSERT_EQ(resumed, Exit::ok);
    const std::vector<double> wanted = losses_of(folder / "whole"), got = losses_of(folder / "run");
    ASSERT_EQ(got.size(), 4u);
    // Another machine's products may round otherwise.
    for (size_t step = 0; step < 4; ++step) EXPECT_NEAR(got[step], wanted[step], 1e-4) << step;
    EXPECT_EQ(verify_checkpoint(checkpoint_of(folder / "run", 4)).data_position, 4 * 4);
}

}  // namespace
}  // namespace q2::test
