#include "train/metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/temp_folder.h"

namespace q2 {
namespace {

using test::expect_error, test::read_bytes, test::TempFolder, test::write_bytes;
using Json = nlohmann::json;

TEST(Metrics, ARecordIsInTheFileAtOnce) {
    const TempFolder folder;
    MetricsWriter writer(folder / "m");
    writer.write({{"step", 0}, {"loss", 2.5}});
    EXPECT_EQ(read_bytes(folder / "m"), "{\"loss\":2.5,\"step\":0}\n");
    writer.write({{"step", 1}, {"loss", std::nan("")}});
    const std::vector<Json> records = read_metrics(folder / "m");
    ASSERT_EQ(records.size(), 2u);
    EXPECT_EQ(records[0].at("loss"), 2.5);
    EXPECT_TRUE(records[1].at("loss").is_null());
}

TEST(Metrics, ATornLastLineIsLeftOut) {
    const TempFolder folder;
    write_bytes(folder / "m", "{\"step\":0}\n{\"step\":1}\n{\"st");
    EXPECT_EQ(read_metrics(folder / "m").size(), 2u);
    write_bytes(folder / "m", "{\"step\":0}\n{\"step\":1}");
    EXPECT_EQ(read_metrics(folder / "m").size(), 2u) << "whole, only its line's end is missing";
}

TEST(Metrics, OtherBadLinesAreErrorsWithTheirNumber) {
    const TempFolder folder;
    for (const char* line : {"{\"st", "", "[1]", "{\"loss\":1}", "{\"step\":\"1\"}", "{\"step\":1.5}"}) {
        write_bytes(folder / "m", concat("{\"step\":0}\n", line, "\n{\"step\":2}\n"));
        expect_error(Exit::data, {(folder / "m") + ":2:"}, [&] { read_metrics(folder / "m"); });
    }
    expect_error(Exit::data, {folder / "none"}, [&] { read_metrics(folder / "none"); });
}

TEST(Metrics, AResumeGoesOnWhereItsStepBegins) {
    const TempFolder folder;
    truncate_metrics(folder / "m", 5);
    EXPECT_FALSE(std::filesystem::exists(folder / "m"));
    const std::string kept = "{\"step\":0,\"loss\":1e0}\n{\"step\":1}\n{\"step\":1,\"val_loss\":2}\n";
    write_bytes(folder / "m", kept + "{\"step\":2}\n{\"step\":3}\n{\"st");
    truncate_metrics(folder / "m", 2);
    EXPECT_EQ(read_bytes(folder / "m"), kept);
    MetricsWriter(folder / "m").write({{"step", 2}});
    EXPECT_EQ(read_bytes(folder / "m"), kept + "{\"step\":2}\n");
}

TEST(Metrics, NamesAFileThatCannotBeWritten) {
    const TempFolder folder;
    expect_error(Exit::data, {folder / "no/m"}, [&] { MetricsWriter(folder / "no/m"); });
}

}  // namespace
}  // namespace q2
