// What a run says where standard output is not a terminal: plain lines, also in log.txt.
#include "train/run_log.h"

#include "tests/support/temp_folder.h"

namespace q2::test {
namespace {

TEST(RunLog, LinesGoToTheOutputAndToTheFile) {
    const TempFolder run;
    const std::string step = "step  7/10  loss 5.4321  norm 1.250  lr 3.00e-03  100 tok/s  ETA 0:30";
    testing::internal::CaptureStdout();
    {
        RunLog log(run.path(), 10, 1000);
        log.message("hello");
        log.step({.step = 6,
                  .loss = 5.43214,
                  .grad_norm = 1.25,
                  .lr = 3e-3,
                  .tokens = 7000,
                  .tokens_per_s = 100,
                  .seconds = 70});
    }
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "hello\n" + step + "\n");
    const std::string file = read_bytes(run / "log.txt");
    EXPECT_NE(file.find(" hello\n"), std::string::npos) << file;
    EXPECT_NE(file.find(" " + step + "\n"), std::string::npos) << file;
}

TEST(RunLog, AResumedRunAppends) {
    const TempFolder run;
    for (const char* text : {"first", "second"}) RunLog(run.path(), 1, 1).message(text);
    const std::string file = read_bytes(run / "log.txt");
    EXPECT_LT(file.find("first"), file.find("second"));
    EXPECT_NE(file.find("second"), std::string::npos);
}

TEST(RunLog, AFolderThatIsNotThereIsAnErrorOfData) {
    const TempFolder folder;
    write_bytes(folder / "file", "");
    expect_error(Exit::data, {"file"}, [&] { RunLog(folder / "file", 1, 1); });
}

}  // namespace
}  // namespace q2::test
