// quartet2 bench quant: what its report holds, and what is refused. Nothing is asked of the speed.
#include <nlohmann/json.hpp>

#include "tests/support/program.h"

namespace q2::test {
namespace {

TEST(BenchQuant, CountsTheBytesOfEveryOp) {
    const Finished f = run_program({"bench", "quant", "--backend", "cpu", "--rows", "32", "--cols", "128",
                                    "--product", "64", "--repeats", "1", "--json"});
    ASSERT_EQ(f.code, 0) << f.err;
    const nlohmann::json report = nlohmann::json::parse(f.out);
    const double copy = report["copy_bytes_per_s"].get<double>();
    EXPECT_GT(copy, 0);
    EXPECT_GT(report["product_flops_per_s"].get<double>(), 0);
    ASSERT_GE(report["ops"].size(), 10u);
    for (const auto& op : report["ops"]) {
        const double seconds = op["seconds"], bytes = op["bytes"], of_copy = op["of_copy"];
        EXPECT_GT(seconds, 0) << op;
        EXPECT_NEAR(of_copy, bytes / seconds / copy, 1e-6 * of_copy) << op;
    }
    // bf16 read; codes, a sixteenth of a scale byte and a float32 dense form written.
    EXPECT_EQ(report["ops"][0]["bytes"].get<double>(), 32 * 128 * (2 + 0.5 + 0.0625 + 4));
}

TEST(BenchQuant, RefusesWhatNoRotationTakes) {
    const Finished odd = run_program({"bench", "quant", "--rows", "32", "--cols", "100"});
    EXPECT_EQ(odd.code, 2);
    EXPECT_NE(odd.err.find("128"), std::string::npos) << odd.err;
    EXPECT_EQ(run_program({"bench", "quant", "--rows", "32"}).code, 2);
}

}  // namespace
}  // namespace q2::test
