// One fault of the file system in a short run: the program says what failed or goes on rightly, no good
// checkpoint is lost, no bad one is accepted, and a resume ends with the undisturbed run's bits.
#include <set>
#include <span>

#include "tests/faults/survival.h"

namespace q2::test {
namespace {

/// How a part of a run may end.
enum class Ends {
    fails,          ///< Exit::data and one line that has all parts of the message
    goes_on,        ///< Exit::ok
    fails_or_goes,  ///< either: whether the fault matters is the program's choice
    dies,           ///< killed
};

/// What comes before the part with the fault, which is then a resume.
struct Before {
    int64_t stop_after = 0;
    std::string faults;
};

struct Case {
    std::string name, faults;
    Ends ends;
    int64_t good;  ///< a checkpoint of this step or a later one must be there afterwards
    std::vector<std::string> message = {};
    Before before = {};
};

// The run has 6 steps, saves after 2, 4 and 6, and keeps one checkpoint. Patterns are of files, not of how
// they are written, and a save may still go on while the next steps are made.
#define SAVE_1 "*step-00000002*"
#define SAVE_2 "*step-00000004*"
#define SAVE_3 "*step-00000006*"
#define MODEL "/model.safetensors*"
#define MOMENTS "/optimizer.safetensors*"
#define MANIFEST "/manifest.json*"
const std::string kFull = "No space left on device", kIo = "Input/output error",
                  kReadOnly = "Read-only file system", kDenied = "Permission denied",
                  kQuota = "Disk quota exceeded";

const Case kFailing[] = {
    {"FullInTheFirstModel", "write 1 ENOSPC " SAVE_1 MODEL, Ends::fails, 0, {"00000002", "model.saf", kFull}},
    {"FullForGood",
     "write 5+ ENOSPC " SAVE_2 "; write 6+ ENOSPC */metrics.jsonl; write 9+ ENOSPC */log.txt",
     Ends::fails,
     2,
     {kFull}},
    {"FullInTheModel", "write 7 ENOSPC " SAVE_2 MODEL, Ends::fails, 2, {"00000004", "model.saf", kFull}},
    {"BadBlockInTheMoments", "write 9 EIO " SAVE_2 MOMENTS, Ends::fails, 2, {"optimizer.saf", kIo}},
    {"QuotaInTheLastMoments", "write 2 EDQUOT " SAVE_3 MOMENTS, Ends::fails, 4, {"optimizer.saf", kQuota}},
    {"FullInTheManifest", "write 1 ENOSPC " SAVE_2 MANIFEST, Ends::fails, 2, {"manifest.json", kFull}},
    {"BadBlockInTheFirstManifest", "write 1 EIO " SAVE_1 MANIFEST, Ends::fails, 0, {"manifest.json", kIo}},
    {"ReadOnlyModel", "open 1 EROFS " SAVE_2 MODEL, Ends::fails, 2, {"00000004", "model.saf", kReadOnly}},
    {"DeniedMoments", "open 1 EACCES " SAVE_1 MOMENTS, Ends::fails, 0, {"optimizer.saf", kDenied}},
    {"DeniedManifest", "open 1 EACCES " SAVE_2 MANIFEST, Ends::fails, 2, {"manifest.json", kDenied}},
    {"NoFolderOfCheckpoints", "mkdir 1 EROFS */checkpoints", Ends::fails, 0, {"/checkpoints", kReadOnly}},
    {"NoFirstFolder", "mkdir 1 ENOSPC " SAVE_1, Ends::fails, 0, {"step-00000002", kFull}},
    {"NoFolder", "mkdir 1 EDQUOT " SAVE_2, Ends::fails, 2, {"step-00000004", kQuota}},
    {"UnflushedFirstModel", "fsync 1 EIO " SAVE_1 MODEL, Ends::fails, 0, {"model.saf", kIo}},
    {"UnflushedModel", "fsync 1 EIO " SAVE_2 MODEL, Ends::fails, 2, {"00000004", "model.saf", kIo}},
    {"UnflushedMoments", "fsync 1 ENOSPC " SAVE_2 MOMENTS, Ends::fails, 2, {"optimizer.saf", kFull}},
    {"UnflushedManifest", "fsync 1 EIO " SAVE_2 MANIFEST, Ends::fails, 2, {"manifest.json", kIo}},
    {"UnflushedFolder", "fsync 1 EIO */step-00000004.tmp", Ends::fails, 2, {"step-00000004", kIo}},
    {"UnflushedCheckpoints", "fsync 2 EIO */checkpoints", Ends::fails, 2, {"/checkpoints", kIo}},
    {"UnnamedModel", "rename 1 EIO " SAVE_2 MODEL, Ends::fails, 2, {"00000004", "model.saf", kIo}},
    {"UnnamedMoments", "rename 1 ENOSPC " SAVE_2 MOMENTS, Ends::fails, 2, {"optimizer.saf", kFull}},
    {"UnnamedManifest", "rename 1 EROFS " SAVE_2 MANIFEST, Ends::fails, 2, {"manifest.json", kReadOnly}},
    {"UnnamedFirstCheckpoint", "rename 1 EACCES */step-00000002", Ends::fails, 0, {"00000002", kDenied}},
    {"UnnamedCheckpoint", "rename 1 EIO */step-00000004", Ends::fails, 2, {"step-00000004", kIo}},
    {"FullInMetrics", "write 3 ENOSPC */metrics.jsonl", Ends::fails, 0, {"metrics.jsonl", kFull}},
    {"BadBlockInMetrics", "write 6 EIO */metrics.jsonl", Ends::fails, 2, {"metrics.jsonl", kIo}},
    {"HalfALineOfMetrics",
     "write 4 short */metrics.jsonl",
     Ends::fails_or_goes,
     0,
     {"metrics.jsonl", "full"}},
    {"DeniedMetrics", "open 1 EACCES */metrics.jsonl", Ends::fails, 0, {"metrics.jsonl", kDenied}},
    {"FullInTheConfig", "write 1 ENOSPC */config.json*", Ends::fails, 0, {"config.json", kFull}},
    {"UnnamedConfig", "rename 1 EIO */config.json*", Ends::fails, 0, {"config.json", kIo}},
    {"NoRunFolder", "mkdir 1 EACCES */run", Ends::fails, 0, {"/run", kDenied}},
    {"DeniedLog", "open 1+ EACCES */log.txt", Ends::fails, 0, {"log.txt", kDenied}},
    {"FullInTheLog", "write 3+ ENOSPC */log.txt", Ends::fails_or_goes, 0, {"log.txt", kFull}},
    {"UnflushedFirstMetrics", "fsync 1 EIO */metrics.jsonl", Ends::fails, 0, {"metrics.jsonl", kIo}},
    {"UnflushedMetrics", "fsync 2 ENOSPC */metrics.jsonl", Ends::fails, 2, {"metrics.jsonl", kFull}},
};

const Case kHarmless[] = {
    {"Harmless_AShortWrite", "write 6 short " SAVE_2 MODEL, Ends::goes_on, 6},
    {"Harmless_ShortWritesAlone", "write 1+ short */checkpoints/*", Ends::goes_on, 6},
    {"Harmless_AnInterruptedWrite", "write 4 EINTR " SAVE_2 MOMENTS, Ends::goes_on, 6},
    {"Harmless_AnOldCheckpointStays", "unlink 1 EACCES " SAVE_1, Ends::goes_on, 6},
    {"Harmless_AnOldCheckpointKeepsItsName", "rename 2 EIO */step-00000002", Ends::goes_on, 6},
    {"Harmless_AFolderThatCannotBeFlushed", "fsync 1+ EINVAL */checkpoints", Ends::goes_on, 6},
};

// The call claims that all was written. The run may notice or not; what is there afterwards decides.
const Case kLies[] = {
    {"Lie_HalfTheFirstModel", "write 2 lie " SAVE_1 MODEL, Ends::fails_or_goes, 0, {"model.saf"}},
    {"Lie_HalfTheModel", "write 5 lie " SAVE_2 MODEL, Ends::fails_or_goes, 2, {"model.saf"}},
    {"Lie_HalfTheLastModel", "write 5 lie " SAVE_3 MODEL, Ends::fails_or_goes, 4, {"model.saf"}},
    {"Lie_HalfTheLastMoments", "write 9 lie " SAVE_3 MOMENTS, Ends::fails_or_goes, 4, {"optimizer.saf"}},
    {"Lie_HalfTheLastManifest", "write 1 lie " SAVE_3 MANIFEST, Ends::fails_or_goes, 4, {"manifest.json"}},
    {"Lie_ALastModelNeverNamed", "rename 1 lie " SAVE_3 MODEL, Ends::fails_or_goes, 4, {"model.saf"}},
};

const Case kKills[] = {
    {"Kill_InTheFirstModel", "write 3 kill " SAVE_1 MODEL, Ends::dies, 0},
    {"Kill_InTheModel", "write 7 kill " SAVE_2 MODEL, Ends::dies, 2},
    {"Kill_InTheMoments", "write 9 kill " SAVE_2 MOMENTS, Ends::dies, 2},
    {"Kill_InTheManifest", "write 1 kill " SAVE_2 MANIFEST, Ends::dies, 2},
    {"Kill_InTheManifestsFlush", "fsync 1 kill " SAVE_2 MANIFEST, Ends::dies, 2},
    {"Kill_BeforeTheManifestsName", "rename 1 kill " SAVE_2 MANIFEST, Ends::dies, 2},
    {"Kill_AfterTheManifestsName", "rename 1 kill_after " SAVE_2 MANIFEST, Ends::dies, 2},
    {"Kill_BeforeTheCheckpointsName", "rename 1 kill */step-00000004", Ends::dies, 2},
    {"Kill_AfterTheCheckpointsName", "rename 1 kill_after */step-00000004", Ends::dies, 4},
    {"Kill_BeforeAnOldOneIsHidden", "rename 2 kill */step-00000002", Ends::dies, 4},
    {"Kill_AfterAnOldOneIsHidden", "rename 2 kill_after */step-00000002", Ends::dies, 4},
    {"Kill_InTheRemovalOfAnOldOne", "unlink 2 kill " SAVE_1, Ends::dies, 4},
    {"Kill_InALineOfMetrics", "write 3 kill */metrics.jsonl", Ends::dies, 0},
    {"Kill_BeforeTheConfigsName", "rename 1 kill */config.json*", Ends::dies, 0},
};

const Case kPowerCuts[] = {
    {"PowerCut_InTheMoments", "write 9 power " SAVE_2 MOMENTS, Ends::dies, 2},
    {"PowerCut_BeforeTheManifestsName", "rename 1 power " SAVE_2 MANIFEST, Ends::dies, 2},
    {"PowerCut_BeforeTheCheckpointsName", "rename 1 power */step-00000004", Ends::dies, 2},
    {"PowerCut_BeforeTheCheckpointsFlush", "fsync 2 power */checkpoints", Ends::dies, 2},
    {"PowerCut_InTheRemovalOfAnOldOne", "unlink 1 power " SAVE_1, Ends::dies, 4},
    {"PowerCut_AfterTheLastSave", "rename 2 power */step-00000004", Ends::dies, 6},
};

const Before kFour = {4, ""}, kBadSix = {0, "write 5 lie " SAVE_3 MODEL};
const Case kResumes[] = {
    {"Resume_FullInMetrics",
     "write 2 ENOSPC */metrics.jsonl*",
     Ends::fails,
     4,
     {"metrics.jsonl", kFull},
     kFour},
    {"Resume_UnnamedMetrics", "rename 1 EIO */metrics.jsonl*", Ends::fails, 4, {"metrics.jsonl", kIo}, kFour},
    {"Resume_KilledBeforeMetricsName", "rename 1 kill */metrics.jsonl*", Ends::dies, 4, {}, kFour},
    {"Resume_KilledAfterMetricsName", "rename 1 kill_after */metrics.jsonl*", Ends::dies, 4, {}, kFour},
    {"Resume_FullInTheLastSave", "write 4 ENOSPC " SAVE_3, Ends::fails, 4, {"step-00000006", kFull}, kFour},
    {"Resume_UnreadableModel", "read 1+ EACCES " SAVE_2 MODEL, Ends::fails, 4, {"model.saf", kDenied}, kFour},
    {"Resume_UnreadableManifest",
     "read 1+ EIO " SAVE_2 MANIFEST,
     Ends::fails,
     4,
     {"manifest.json", kIo},
     kFour},
    {"Resume_TheBadOneIsReplacedWithoutAnExchange",
     "rename 1 EINVAL */step-00000006",
     Ends::goes_on,
     6,
     {},
     kBadSix},
    {"Resume_TheBadOneCannotBeRemoved",
     "unlink 1 EACCES " SAVE_3,
     Ends::fails_or_goes,
     4,
     {"00000006", kDenied},
     kBadSix},
    {"Resume_KilledBeforeTheExchange", "rename 1 kill */step-00000006", Ends::dies, 4, {}, kBadSix},
    {"Resume_KilledAfterTheExchange", "rename 1 kill_after */step-00000006", Ends::dies, 6, {}, kBadSix},
};

class Fault : public testing::TestWithParam<Case> {
  protected:
    static DisturbedRun& run() {
        static DisturbedRun shared(
            6, {"model.layers=1", "data.sequence=16", "train.micro_batch=1", "train.accumulate=1",
                "train.eval_every=3", "train.eval_batches=2", "checkpoint.every=2", "checkpoint.keep=1"});
        return shared;
    }
    void SetUp() override { run().clear(); }
    void TearDown() override { run().clear(); }
};

void expect_message(const Finished& f, const Case& c) {
    EXPECT_TRUE(f.err.find("quartet2: ") != std::string::npos) << f.err;
    for (const std::string& part : c.message) EXPECT_NE(f.err.find(part), std::string::npos) << f.err;
}

void expect_ending(const Finished& f, const Case& c) {
    const int data = int(Exit::data);
    switch (c.ends) {
        case Ends::fails:
            EXPECT_EQ(f.code, data) << f.err;
            return expect_message(f, c);
        case Ends::goes_on:
            EXPECT_EQ(f.code, 0);
            EXPECT_EQ(f.err.find("quartet2: "), std::string::npos) << f.err;
            return;
        case Ends::fails_or_goes:
            EXPECT_TRUE(f.code == 0 || f.code == data) << f.code << ": " << f.err;
            if (f.code != 0) expect_message(f, c);
            return;
        case Ends::dies:
            EXPECT_EQ(f.code, -1) << f.err;
    }
}

TEST_P(Fault, LosesNothingAndAResumeEndsWithTheSameBits) {
    const Case& c = GetParam();
    if (c.before.stop_after > 0 || !c.before.faults.empty()) {
        const Overrides stop = {concat("train.stop_after=", c.before.stop_after)};
        const Finished f = run_program(run().next(stop), with_faults(c.before.faults));
        ASSERT_EQ(f.code, 0) << f.err;
    }
    const Finished f =
        run_program(run().next({"train.stop_after=0"}), with_faults(c.faults, run().fault_log()));
    EXPECT_NE(read_bytes(run().fault_log()), "") << "the fault was not reached: " << c.faults;
    expect_ending(f, c);
    run().expect_good(c.good);
    if (!run().started()) {
        EXPECT_EQ(run_program({"train", "--resume", run().folder()}).code, int(Exit::data));
    }
    run().expect_same_end();
}

/// A case as GoogleTest prints it.
void PrintTo(const Case& c, std::ostream* out) { *out << c.faults; }

/// Those of the ordinary suite. The others run with `ctest -C nightly`.
const std::set<std::string> kEveryday = {"FullInTheFirstModel",
                                         "FullForGood",
                                         "UnflushedModel",
                                         "UnflushedManifest",
                                         "UnnamedCheckpoint",
                                         "FullInMetrics",
                                         "Harmless_ShortWritesAlone",
                                         "Lie_HalfTheModel",
                                         "Lie_HalfTheLastManifest",
                                         "Kill_InTheFirstModel",
                                         "Kill_AfterTheManifestsName",
                                         "Kill_InTheRemovalOfAnOldOne",
                                         "PowerCut_InTheRemovalOfAnOldOne",
                                         "Resume_UnnamedMetrics"};

std::vector<Case> cases(bool everyday) {
    std::vector<Case> chosen;
    for (const std::span<const Case> group :
         {std::span<const Case>(kFailing), std::span<const Case>(kHarmless), std::span<const Case>(kLies),
          std::span<const Case>(kKills), std::span<const Case>(kPowerCuts), std::span<const Case>(kResumes)})
        for (const Case& c : group)
            if (kEveryday.contains(c.name) == everyday) chosen.push_back(c);
    return chosen;
}

std::string name_of(const testing::TestParamInfo<Case>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Everyday, Fault, testing::ValuesIn(cases(true)), name_of);
INSTANTIATE_TEST_SUITE_P(Nightly, Fault, testing::ValuesIn(cases(false)), name_of);

}  // namespace
}  // namespace q2::test
