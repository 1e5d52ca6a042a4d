// The plan's figures against hand counts, and the largest micro-batch against the limit it was asked for.
#include "commands/plan.h"

#include "ops/ops.h"
#include "tests/support/program.h"
#include "tests/support/tiny_run.h"
#include "train/memory_plan.h"

namespace q2::test {
namespace {

TEST(Plan, CountsTheParametersOfThe30M) {
    const Config c = load_config(QUARTET2_SOURCE_DIR "/configs/llama-30m.json", {"train.backend=cpu"});
    const auto report = plan_report(c, 8e9);
    const int64_t block = 640 * 3 * 640 + 640 * 640 + 3 * 640 * 1792 + 2 * 640;
    EXPECT_EQ(report["parameters"]["embedding"], 32000 * 640);
    EXPECT_EQ(report["parameters"]["head"], 32000 * 640);
    EXPECT_EQ(report["parameters"]["blocks"], 6 * block + 640);
    EXPECT_EQ(report["parameters"]["total"], 2 * 32000 * 640 + 6 * block + 640);
    EXPECT_EQ(report["checkpoint_bytes"], 12 * (2 * 32000 * 640 + 6 * block + 640));
    EXPECT_EQ(report["step_tokens"], 32 * 16 * 512);
    EXPECT_TRUE(report["data"]["bytes"].is_null());
    EXPECT_GE(report["memory"]["uses"]["moments"], 8 * (2 * 32000 * 640 + 6 * block));
}

TEST(Plan, TheUsesAddUp) {
    const TinyRun tiny;
    const auto memory = plan_report(tiny.config(), {})["memory"];
    size_t sum = 0;
    for (const auto& [name, bytes] : memory["uses"].items()) sum += bytes.get<size_t>();
    EXPECT_EQ(memory["carved"], sum);
    for (const char* beside : {"runtime", "checkpoint_copy"}) sum += memory[beside].get<size_t>();
    EXPECT_EQ(memory["total"], sum);
}

TEST(Plan, TheLargestMicroBatchIsTheLastThatFits) {
    const TinyRun tiny;
    for (const std::string recipe : {"bf16", "quartet2", "nvidia"}) {
        const Config c = tiny.config({"precision.recipe=" + recipe});
        for (const int64_t batch : {1, 7, 100}) {
            const size_t bytes = plan_training(with_micro_batch(c, batch), *cpu_ops()).used();
            const int64_t largest = largest_micro_batch(c, *cpu_ops(), bytes);
            EXPECT_GE(largest, batch) << recipe;
            EXPECT_LE(plan_training(with_micro_batch(c, largest), *cpu_ops()).used(), bytes) << recipe;
            EXPECT_GT(plan_training(with_micro_batch(c, largest + 1), *cpu_ops()).used(), bytes) << recipe;
        }
        EXPECT_EQ(largest_micro_batch(c, *cpu_ops(), 1000), 0);
    }
}

TEST(Plan, CommandPrintsTheTableOrOneObject) {
    const TinyRun tiny;
    const Finished text = run_program({"plan", tiny.config_path(), "--memory", "0.5"});
    EXPECT_EQ(text.code, 0) << text.err;
    for (const char* part : {"parameters", "moments", "linear inputs", "runtime", "largest", "512.0 MiB"})
        EXPECT_NE(text.out.find(part), std::string::npos) << text.out;
    const Finished json = run_program({"plan", tiny.config_path(), "--json"});
    EXPECT_TRUE(nlohmann::json::parse(json.out).contains("largest_micro_batch"));
    if (cuda_ops())
        EXPECT_EQ(run_program({"plan", tiny.config_path(), "--backend", "cuda"}).code, 0);
    else
        expect_failure({"plan", tiny.config_path(), "--backend", "cuda"}, Exit::device, {"without the CUDA"});
}

}  // namespace
}  // namespace q2::test
