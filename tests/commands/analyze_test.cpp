// The error table on N(0,1) against the figures of docs/NUMERICS.md (sections 3 and 6).
#include "commands/analyze.h"

#include "tests/support/program.h"
#include "tests/support/tiny_run.h"

namespace q2::test {
namespace {

double error_of(const nlohmann::ordered_json& table, const std::string& quantiser,
                const std::string& column) {
    for (const auto& row : table["rows"])
        if (row["quantiser"] == quantiser) return row["errors"][column];
    ADD_FAILURE() << "no row " << quantiser;
    return 0;
}

TEST(AnalyzeErrors, OnNormalDataAsPublished) {
    const auto table = error_table(1, "");
    const auto normal = [&](const char* quantiser) { return error_of(table, quantiser, "normal"); };
    EXPECT_NEAR(normal("nearest six 1x16"), 0.0090, 1e-4);
    EXPECT_NEAR(normal("nearest mse 1x16"), 0.0076, 1e-4);
    EXPECT_NEAR(normal("nearest search 1x16"), 0.0066, 1e-4);
    EXPECT_NEAR(normal("stochastic, rotation 0"), 0.0235, 3e-4);
    EXPECT_NEAR(normal("ms_eden 128"), 0.0097, 2e-4);
    EXPECT_NEAR(normal("ms_eden 16"), 0.0093, 2e-4);
    EXPECT_LT(normal("ms_eden 128"), normal("stochastic, rotation 128") / 2);
    EXPECT_GT(normal("nearest six 16x16"), normal("nearest six 1x16"));
}

TEST(AnalyzeErrors, ARotationTamesOutlierChannels) {
    const auto table = error_table(2, "");
    EXPECT_LT(error_of(table, "stochastic, rotation 128", "outliers"),
              error_of(table, "stochastic, rotation 0", "outliers"));
}

/// The error at the last n over the first's, times n: 1 without bias.
double growth(const nlohmann::ordered_json& table, const std::string& recipe, const char* what) {
    for (const auto& curve : table["curves"])
        if (curve["recipe"] == recipe)
            return curve[what].back().get<double>() * curve["n"].back().get<double>() /
                   curve[what].front().get<double>();
    ADD_FAILURE() << "no curve " << recipe;
    return 0;
}

TEST(AnalyzeBias, FallsAsOneOverN) {
    const auto table = bias_table(3, 0, 128);
    for (const char* recipe : {"quartet2", "quartet2_plus", "tetrajet_v2"})
        for (const char* what : {"dx", "dw"}) {
            EXPECT_GT(growth(table, recipe, what), 0.6) << recipe << what;
            EXPECT_LT(growth(table, recipe, what), 1.6) << recipe << what;
        }
    EXPECT_LT(growth(table, "nvidia", "dx"), 1.6);
}

TEST(AnalyzeBias, OnHeavyTailsOnlyTwoRoundsKeepFalling) {
    const auto table = bias_table(3, 1.5, 256);
    EXPECT_LT(growth(table, "quartet2_plus", "dw"), 1.7);
    EXPECT_GT(growth(table, "quartet2", "dw"), 1.7);
}

TEST(AnalyzeErrors, CommandTakesARunsWeights) {
    const TinyRun tiny;
    ASSERT_EQ(
        run_program({"train", tiny.config_path(), "--out", tiny / "run", "--set", "train.steps=1"}).code, 0);
    const Finished f =
        run_program({"analyze", "errors", tiny / "run", "--json", "--svg", tiny / "errors.svg"});
    ASSERT_EQ(f.code, 0) << f.err;
    const auto table = nlohmann::ordered_json::parse(f.out);
    // Weights right after a step are still near normal.
    for (const char* kind : {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"})
        EXPECT_NEAR(error_of(table, "nearest mse 1x16", kind), 0.0076, 5e-4) << kind;
    EXPECT_NE(read_bytes(tiny / "errors.svg").find("</svg>"), std::string::npos);
    expect_failure({"analyze", "errors", "--svg", tiny / "run/metrics.jsonl"}, Exit::usage, {"not an SVG"});
}

}  // namespace
}  // namespace q2::test
