#include "model/flops.h"

#include <gtest/gtest.h>

#include "train/config.h"

namespace q2 {
namespace {

TEST(Flops, CountsTheFlopsOfAToken) {
    // The 30M model: 6 x (blocks and norms) + 6 V C + 6 L A T, worked out by hand.
    const Config c = load_config(QUARTET2_SOURCE_DIR "/configs/llama-30m.json");
    const double block = 640.0 * (3 * 640 + 640 + 3 * 1792) + 2 * 640;
    const double expected = 6 * (6 * block + 640 + 32000.0 * 640 + 6.0 * 640 * 512);
    EXPECT_DOUBLE_EQ(training_flops_a_token(c.model, 512), expected);
    EXPECT_NEAR(expected, 317.6e6, 0.1e6);
}

// The figure that the peers' table gives for PyTorch: 382 TFLOP/s at 1,204,288 tokens a second.
TEST(Flops, UtilisationIsOfTheDensePeak) {
    const Config c = load_config(QUARTET2_SOURCE_DIR "/configs/llama-30m.json");
    EXPECT_NEAR(*utilisation(c.model, 512, 1204288, "NVIDIA H200"), 382.0 / 989, 1e-3);
}

TEST(Flops, GroupedHeadsNeedFewerFlops) {
    ModelConfig m;
    m.heads = 8, m.width = 1024;
    const double all = training_flops_a_token(m, 128);
    m.kv_heads = 2;
    EXPECT_DOUBLE_EQ(all - training_flops_a_token(m, 128), 6.0 * 6 * 1024 * (2 * 6 * 128));
}

TEST(Flops, AnUnknownDeviceHasNoPeak) {
    EXPECT_EQ(peak_flops("NVIDIA H200, 143156 MiB"), 989e12);
    EXPECT_FALSE(peak_flops("CPU, AMD EPYC"));
    EXPECT_FALSE(utilisation(ModelConfig{}, 512, 1e6, "CPU, AMD EPYC"));
}

}  // namespace
}  // namespace q2
