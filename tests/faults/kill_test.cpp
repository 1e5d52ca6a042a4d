// SIGKILL at random moments of a short run and of its resumes, half of them aimed at a save: the good
// checkpoint is never lost, and the last resume ends with the undisturbed run's bits.
//
//   QUARTET2_KILL_RUNS      runs to kill, 6 by default; each is killed one to three times
//   QUARTET2_KILL_BACKEND   cpu by default
//   QUARTET2_TEST_SEED      repeats a draw of moments (the seed is printed)
#include <chrono>
#include <random>
#include <set>
#include <thread>

#include "tests/faults/survival.h"
#include "tests/support/device.h"

namespace q2::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

// Saves slowed down to about half of the run's time.
const std::string kSlowSaves =
    "write 1+ wait=600 */checkpoints/*; fsync 1+ wait=600 */checkpoints*; "
    "rename 1+ wait=600 */checkpoints/*; unlink 1+ wait=600 */checkpoints/*";
constexpr double kSaveMilliseconds = 30;  // about, at the least
constexpr int64_t kSteps = 12;

std::string setting(const char* name, const char* otherwise) {
    const char* given = std::getenv(name);
    return given && *given ? given : otherwise;
}

/// Changes when the run's loop begins: a resume writes the file anew.
uint64_t metrics_inode(const std::string& run) {
    struct stat status {};
    return ::stat((run + "/metrics.jsonl").c_str(), &status) == 0 ? status.st_ino : 0;
}

/// Names of saves that have begun and not ended.
std::set<std::string> unfinished(const std::string& run) {
    std::set<std::string> names;
    std::error_code error;
    for (fs::directory_iterator it(run + "/checkpoints", error), end; !error && it != end;
         it.increment(error))
        if (it->path().extension() == ".tmp") names.insert(it->path().filename());
    return names;
}

class Kill : public testing::Test {
  protected:
    Kill()
        : backend_(setting("QUARTET2_KILL_BACKEND", "cpu")),
          seed_(uint32_t(
              std::stoul(setting("QUARTET2_TEST_SEED", std::to_string(std::random_device{}()).c_str())))),
          random_(seed_) {}

    double draw(double below) { return std::uniform_real_distribution<double>(0, below)(random_); }
    int64_t draw_whole(int64_t low, int64_t high) {
        return std::uniform_int_distribution<int64_t>(low, high)(random_);
    }
    void kill_runs(DisturbedRun& run, int64_t runs);

  private:
    enum class Aim { life, loop, save };

    void measure_life(DisturbedRun& run);
    void kill_one(DisturbedRun& run);
    void strike(DisturbedRun& run, Aim aim);
    /// Sleeps until the moment to strike; the program may end first.
    void wait_for(const Program& program, const DisturbedRun& run, Aim aim, uint64_t old_metrics);
    template <class Done>
    static void poll(const Program& program, Done done) {
        while (!done() && program.running()) std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    static void sleep(double milliseconds) { std::this_thread::sleep_for(Milliseconds(milliseconds)); }

  protected:
    std::string backend_;
    uint32_t seed_;
    int64_t kills_ = 0, in_saves_ = 0, of_resumes_ = 0;

  private:
    std::mt19937 random_;
    double life_ = 0, loop_ = 0;  ///< a slowed run's milliseconds
};

void Kill::measure_life(DisturbedRun& run) {
    const auto start = Clock::now();
    Program program(run.next(), with_faults(kSlowSaves));
    poll(program, [&] { return metrics_inode(run.folder()) != 0; });
    const auto loop = Clock::now();
    EXPECT_EQ(program.wait().code, 0);
    life_ = Milliseconds(Clock::now() - start).count();
    loop_ = Milliseconds(Clock::now() - loop).count();
    run.expect_same_end();
}

void Kill::wait_for(const Program& program, const DisturbedRun& run, Aim aim, uint64_t old_metrics) {
    if (aim == Aim::life) return sleep(draw(life_));
    poll(program, [&] { return metrics_inode(run.folder()) != old_metrics; });
    if (aim == Aim::loop) return sleep(draw(loop_));
    const std::set<std::string> left = unfinished(run.folder());
    std::set<std::string> seen;
    const size_t wanted = size_t(draw_whole(1, 4));
    poll(program, [&] {
        for (const std::string& name : unfinished(run.folder()))
            if (!left.contains(name)) seen.insert(name);
        return seen.size() >= wanted;
    });
    sleep(draw(kSaveMilliseconds));
}

void Kill::strike(DisturbedRun& run, Aim aim) {
    const uint64_t old_metrics = metrics_inode(run.folder());
    const bool resume = run.started();
    Program program(run.next({concat("checkpoint.keep=", draw_whole(0, 2))}), with_faults(kSlowSaves));
    wait_for(program, run, aim, old_metrics);
    const int64_t good = run.newest();
    program.send(SIGKILL);
    const Finished f = program.wait();
    ASSERT_TRUE(f.code == -1 || f.code == 0) << f.err;
    kills_ += f.code == -1;
    of_resumes_ += f.code == -1 && resume;
    in_saves_ += f.code == -1 && !unfinished(run.folder()).empty();
    run.expect_good(good);
}

void Kill::kill_one(DisturbedRun& run) {
    run.clear();
    for (int64_t strikes = draw_whole(1, 3); strikes > 0; --strikes) {
        const double aim = draw(1);
        strike(run, aim < 0.6 ? Aim::save : aim < 0.9 ? Aim::loop : Aim::life);
        if (HasFatalFailure()) return;
    }
    run.expect_same_end();
}

void Kill::kill_runs(DisturbedRun& run, int64_t runs) {
    measure_life(run);
    for (int64_t i = 0; i < runs && !HasFailure(); ++i) {
        SCOPED_TRACE(concat("run ", i, " of seed ", seed_));
        kill_one(run);
    }
    std::printf("%lld kills, %lld of them in a save, %lld of a resume\n", (long long)kills_,
                (long long)in_saves_, (long long)of_resumes_);
}

TEST_F(Kill, AtRandomMomentsNothingIsLostAndAResumeEndsWithTheSameBits) {
    OPEN_BACKEND_OR_SKIP(available, backend_);
    const int64_t runs = std::stoll(setting("QUARTET2_KILL_RUNS", "6"));
    std::printf("seed %u\n", seed_);
    DisturbedRun run(kSteps, {"train.backend=" + backend_, "model.layers=1", "train.accumulate=1",
                              "checkpoint.every=2", "checkpoint.keep=1"});
    kill_runs(run, runs);
    if (HasFailure()) return;
    EXPECT_GE(kills_, runs);
    // Chance and a busy machine decide the share; with many runs it is far above this.
    if (runs >= 50) {
        EXPECT_GE(2 * in_saves_, kills_);
    }
}

}  // namespace
}  // namespace q2::test
