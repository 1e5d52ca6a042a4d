// What a run that was disturbed must still be: nothing good lost, nothing bad accepted, and in the end the
// bits of the run that was left alone.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/program.h"
#include "tests/support/tiny_run.h"
#include "train/checkpoint.h"

namespace q2::test {

/// The environment in which the program meets these faults (the rules of fault_injection.cpp).
inline std::vector<std::string> with_faults(const std::string& rules, const std::string& log = "") {
    const char* sanitizer = std::getenv("ASAN_OPTIONS");
    return {"LD_PRELOAD=" QUARTET2_FAULT_INJECTION, "QUARTET2_FAULTS=" + rules, "QUARTET2_FAULT_LOG=" + log,
            concat("ASAN_OPTIONS=", sanitizer ? sanitizer : "", ":verify_asan_link_order=0")};
}

/// A run of `steps` steps, again and again in folders of its own: once undisturbed with all its checkpoints,
/// then as the test likes.
class DisturbedRun {
  public:
    DisturbedRun(int64_t steps, const Overrides& settings) : steps_(steps) {
        for (const std::string& s : settings + Overrides{concat("train.steps=", steps)})
            settings_ = settings_ + Overrides{"--set", s};
        const Finished f = run_program(start(undisturbed(), {"checkpoint.keep=0"}), with_faults(""));
        EXPECT_EQ(f.code, 0) << f.err;
        wanted_ = outcome_of(undisturbed(), steps_);
    }

    std::string folder() const { return tiny_ / "run"; }
    std::string fault_log() const { return tiny_ / "faults.log"; }
    /// Whether a resume has something to go on with.
    bool started() const { return std::filesystem::exists(folder() + "/config.json"); }
    void clear() {
        std::filesystem::remove_all(folder());
        std::filesystem::remove(fault_log());
    }

    /// The command that starts the run, or goes on with it if there is one to go on with.
    std::vector<std::string> next(const Overrides& settings = {}) {
        if (!started()) return start(folder(), settings);
        return Overrides{"train", "--resume", folder()} + sets(settings);
    }

    /// The newest checkpoint that a resume would take; 0 without one.
    int64_t newest() const {
        const CheckpointSearch search = find_latest_checkpoint(folder());
        return search.folder ? search.meta.step : 0;
    }
    /// What a resume would take is of step `least` or a later one, and is what the undisturbed run saved
    /// there.
    void expect_good(int64_t least) const {
        const CheckpointSearch search = find_latest_checkpoint(folder());
        std::string skipped;
        for (const SkippedCheckpoint& s : search.skipped) skipped += s.folder + ": " + s.reason + "\n";
        const int64_t step = search.folder ? search.meta.step : 0;
        EXPECT_GE(step, least) << "a good checkpoint is lost; skipped: " << skipped;
        if (step == 0) return;
        for (const char* file : {"/model.safetensors", "/optimizer.safetensors"})
            EXPECT_TRUE(read_bytes(*search.folder + file) ==
                        read_bytes(checkpoint_of(undisturbed(), step) + file))
                << *search.folder << file << " is accepted and bad";
    }
    /// Goes on without a fault to the end, where all is as if there had been none.
    void expect_same_end() {
        const bool more_to_save = newest() < steps_;
        const Finished f = run_program(next({"train.stop_after=0"}), with_faults(""));
        EXPECT_EQ(f.code, 0) << f.err;
        expect_same(wanted_, outcome_of(folder(), steps_), "the resumed run");
        if (!more_to_save) return;  // the next save removes what an interrupted one left
        for (const auto& entry : std::filesystem::recursive_directory_iterator(folder()))
            EXPECT_FALSE(entry.path().string().ends_with(".tmp")) << entry.path() << " is left behind";
    }

  private:
    std::string undisturbed() const { return tiny_ / "undisturbed"; }
    static Overrides sets(const Overrides& settings) {
        Overrides arguments;
        for (const std::string& s : settings) arguments = arguments + Overrides{"--set", s};
        return arguments;
    }
    Overrides start(const std::string& folder, const Overrides& settings) const {
        return Overrides{"train", tiny_.config_path(), "--out", folder} + settings_ + sets(settings);
    }

    TinyRun tiny_;
    int64_t steps_;
    Overrides settings_;
    Outcome wanted_;
};

}  // namespace q2::test
