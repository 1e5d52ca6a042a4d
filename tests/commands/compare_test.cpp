#include "commands/compare.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/check.h"

namespace q2 {
namespace {

namespace fs = std::filesystem;

using Json = nlohmann::json;

Json training(int64_t step, double loss) { return {{"step", step}, {"loss", loss}}; }
Json evaluation(int64_t step, double val_loss) { return {{"step", step}, {"val_loss", val_loss}}; }

/// Logged every `every` steps; loss falls from 3, with `offset` on top from step `from` on.
RunCurves run_of(const char* name, int64_t steps, int64_t every, double offset, int64_t from = 0) {
    std::vector<Json> records;
    for (int64_t s = 0; s < steps; s += every)
        records.push_back(training(s, 3 - 0.001 * double(s) + (s >= from ? offset : 0)));
    return curves_of(name, records);
}

Exit code_of(const std::function<void()>& f) {
    try {
        f();
    } catch (const Error& e) {
        return e.code;
    }
    return Exit::ok;
}

TEST(Compare, PairsEqualSteps) {
    const Comparison c = compare_runs(run_of("a", 100, 1, 0), run_of("b", 100, 1, 0.25));
    ASSERT_EQ(c.loss.size(), 100u);
    for (const PairedLoss& pair : c.loss) EXPECT_NEAR(pair.gap(), 0.25, 1e-12);
    EXPECT_NEAR(*c.loss_gap, 0.25, 1e-12);
    EXPECT_NEAR(*c.tail_loss_gap, 0.25, 1e-12);
    EXPECT_FALSE(c.val_step);
}

TEST(Compare, TailIsTheLastTenth) {
    // The gap exists in steps 90..99 alone: all of the tail, a tenth of the whole.
    const Comparison c = compare_runs(run_of("a", 100, 1, 0), run_of("b", 100, 1, 0.5, 90));
    EXPECT_EQ(c.tail_first, 90);
    EXPECT_NEAR(*c.tail_loss_gap, 0.5, 1e-12);
    EXPECT_NEAR(*c.loss_gap, 0.05, 1e-12);
    EXPECT_NEAR(*c.tail_loss, 3 - 0.0945 + 0.5, 1e-12);
    const Comparison outside = compare_runs(run_of("a", 100, 1, 0.5, 90), run_of("b", 100, 1, 0.5, 91));
    EXPECT_NEAR(*outside.tail_loss_gap, -0.05, 1e-12);
}

TEST(Compare, TailNeverEmpty) {
    for (int64_t steps = 1; steps < 25; ++steps) {
        const Comparison c = compare_runs(run_of("a", steps, 1, 0), run_of("b", steps, 1, 1));
        ASSERT_TRUE(c.tail_loss_gap) << steps;
        EXPECT_NEAR(*c.tail_loss_gap, 1, 1e-12) << steps;
    }
}

TEST(Compare, DifferentLengthsEndAtTheShorter) {
    const Comparison c = compare_runs(run_of("a", 200, 1, 0), run_of("b", 100, 1, 0.5, 90));
    EXPECT_EQ(c.loss.size(), 100u);
    EXPECT_EQ(c.tail_first, 90);
    EXPECT_NEAR(*c.tail_loss_gap, 0.5, 1e-12);
}

TEST(Compare, UnequalLoggingStepsUseTheCommonOnes) {
    const Comparison c = compare_runs(run_of("a", 100, 4, 0), run_of("b", 100, 6, 0.5));
    ASSERT_EQ(c.loss.size(), 9u);  // 0, 12, ..., 96
    for (size_t i = 0; i < c.loss.size(); ++i) EXPECT_EQ(c.loss[i].step, int64_t(i) * 12);
    EXPECT_NEAR(*c.loss_gap, 0.5, 1e-12);
}

TEST(Compare, NoCommonStepIsRefusedWithBothSpans) {
    std::vector<Json> odd = {training(1, 3), training(3, 2)};
    try {
        compare_runs(run_of("a", 10, 2, 0), curves_of("b", odd));
        FAIL();
    } catch (const Error& e) {
        EXPECT_EQ(e.code, Exit::data);
        EXPECT_NE(std::string(e.what()).find("a has 5 losses at steps 0 to 8"), std::string::npos)
            << e.what();
        EXPECT_NE(std::string(e.what()).find("b has 2 losses at steps 1 to 3"), std::string::npos)
            << e.what();
    }
    EXPECT_EQ(code_of([] { compare_runs(curves_of("a", {}), curves_of("b", {})); }), Exit::data);
}

TEST(Compare, ValidationAtTheLastCommonEvaluation) {
    const RunCurves a = curves_of("a", {evaluation(50, 2.5), evaluation(100, 2.0), evaluation(150, 1.5)});
    const RunCurves b = curves_of("b", {evaluation(50, 2.75), evaluation(100, 2.125), evaluation(120, 9)});
    const Comparison c = compare_runs(a, b);
    EXPECT_EQ(*c.val_step, 100);
    EXPECT_EQ(*c.val_loss_gap, 0.125);
    EXPECT_EQ(*c.last_val_loss, 2.125);
    EXPECT_FALSE(c.loss_gap);
    EXPECT_FALSE(c.tail_loss_gap);
}

TEST(Compare, LaterLineOfAStepWinsAndSpeedIsTheMedian) {
    std::vector<Json> records = {training(0, 3), training(1, 2.5), training(1, 2)};
    records[0]["tokens_per_s"] = 10;  // the first step warms up
    records[1]["tokens_per_s"] = 1000;
    records[2]["tokens_per_s"] = 1010;
    const RunCurves run = curves_of("a", records);
    EXPECT_EQ(run.loss.at(1), 2);
    EXPECT_EQ(*run.tokens_per_s, 1000);
    EXPECT_EQ(*run.last_step(), 1);
}

TEST(Compare, NullIsNoValueAndTextIsRefused) {
    const RunCurves run = curves_of("a", {training(0, 3), {{"step", 1}, {"loss", nullptr}}});
    EXPECT_EQ(run.loss.size(), 1u);
    EXPECT_EQ(code_of([] { curves_of("a", {{{"step", 1}, {"loss", "low"}}}); }), Exit::data);
}

TEST(Compare, TableHasALineForEachRun) {
    const std::string table =
        comparison_table({run_of("base", 100, 1, 0), run_of("near", 100, 1, 0.125), run_of("x", 50, 1, -1)});
    std::istringstream lines(table);
    std::string line, first, second, third;
    std::getline(lines, line);
    std::getline(lines, first);
    std::getline(lines, second);
    std::getline(lines, third);
    EXPECT_EQ(first.substr(0, 4), "base");
    EXPECT_EQ(second.substr(0, 4), "near");
    EXPECT_NE(second.find("+0.12500"), std::string::npos);
    EXPECT_NE(third.find("-1.00000"), std::string::npos);
    EXPECT_EQ(line.size(), second.size());
    EXPECT_EQ(line.size(), third.size());
}

TEST(Compare, JsonHoldsTheSameFigures) {
    const auto json =
        nlohmann::json::parse(comparison_json({run_of("base", 100, 1, 0), run_of("other", 100, 10, 0.125)}));
    EXPECT_EQ(json["baseline"], "base");
    const auto& other = json["runs"][1];
    EXPECT_EQ(other["run"], "other");
    EXPECT_EQ(other["paired_steps"], 10);
    EXPECT_NEAR(other["tail_loss_gap"].get<double>(), 0.125, 1e-12);
    EXPECT_EQ(other["loss_gaps"].size(), 10u);
    EXPECT_EQ(other["loss_gaps"][3]["step"], 30);
    EXPECT_TRUE(other["val_loss_gap"].is_null());
}

class CompareFiles : public ::testing::Test {
  protected:
    void SetUp() override {
        const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
        folder_ = fs::temp_directory_path() / concat("quartet2-compare-", name);
        fs::remove_all(folder_);
        write_run("a", 0);
        write_run("b", 0.25);
    }
    void TearDown() override { fs::remove_all(folder_); }

    void write_run(const char* name, double offset) {
        fs::create_directories(folder_ / name);
        std::ofstream file(folder_ / name / "metrics.jsonl");
        for (int step = 0; step < 20; ++step)
            file << "{\"step\": " << step << ", \"loss\": " << 3 + offset << "}\n";
        file << "{\"step\": 19, \"val_loss\": " << 2 + offset << "}\n";
    }
    std::string at(const char* name) const { return (folder_ / name).string(); }

    fs::path folder_;
};

TEST_F(CompareFiles, CommandWritesTableAndPlot) {
    CLI::App app;
    std::function<int()> run;
    add_compare(app, run);
    app.parse(concat("compare ", at("a"), " ", at("b"), " --svg ", at("plot.svg")));
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(run(), 0);
    const std::string out = ::testing::internal::GetCapturedStdout();
    EXPECT_NE(out.find("+0.25000"), std::string::npos) << out;
    std::stringstream svg;
    svg << std::ifstream(at("plot.svg")).rdbuf();
    EXPECT_NE(svg.str().find("Gap to"), std::string::npos);
    EXPECT_NE(svg.str().find("</svg>"), std::string::npos);
}

TEST_F(CompareFiles, APlotReplacesOnlyAPlot) {
    const auto plot_into = [&](const std::string& path, bool force) {
        ::testing::internal::CaptureStdout();
        const Exit code = code_of([&] { compare({{at("a"), at("b")}, true, path, force}); });
        ::testing::internal::GetCapturedStdout();
        return code;
    };
    const auto first_of = [](const std::string& path) { return char(std::ifstream(path).get()); };
    EXPECT_EQ(plot_into(at("a/metrics.jsonl"), false), Exit::usage);
    EXPECT_EQ(plot_into(at("b/metrics.jsonl"), true), Exit::usage) << "even with --force";
    fs::create_symlink(at("a/metrics.jsonl"), at("link.svg"));
    EXPECT_EQ(plot_into(at("link.svg"), true), Exit::usage);
    EXPECT_EQ(first_of(at("a/metrics.jsonl")), '{');
    EXPECT_EQ(first_of(at("b/metrics.jsonl")), '{');
    EXPECT_EQ(plot_into(at("plot.svg"), false), Exit::ok);
    EXPECT_EQ(plot_into(at("plot.svg"), false), Exit::ok);
    EXPECT_EQ(plot_into(at("a"), true), Exit::data) << "a folder";
    std::ofstream(at("note.txt")) << "mine";
    EXPECT_EQ(plot_into(at("note.txt"), true), Exit::ok);
    EXPECT_EQ(first_of(at("note.txt")), '<');
}

TEST_F(CompareFiles, MissingRunsAreNamed) {
    const auto outcome = [&](std::vector<std::string> runs) {
        return code_of([&] { compare({runs, false, ""}); });
    };
    EXPECT_EQ(outcome({at("a"), at("nowhere")}), Exit::data);
    fs::create_directories(folder_ / "empty");
    EXPECT_EQ(outcome({at("a"), at("empty")}), Exit::data);
    EXPECT_EQ(outcome({at("a")}), Exit::usage);
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(code_of([&] { compare({{at("a"), at("b")}, true, at("no/such/plot.svg")}); }), Exit::data);
    ::testing::internal::GetCapturedStdout();
}

}  // namespace
}  // namespace q2
