// Parameters: the flat vector's layout, Hugging Face's names for its parts, and the initial values.
#include "model/params.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <thread>

namespace q2 {
namespace {

constexpr ModelConfig kModel = {.layers = 3, .width = 96, .heads = 6, .kv_heads = 2, .mlp = 80, .vocab = 37};

std::vector<float> initial(const ModelConfig& model, uint64_t seed) {
    const ParameterTable table = parameter_table(model, 0.02);
    std::vector<float> values(size_t(table.size), NAN);
    initialise(table, seed, values.data());
    return values;
}

TEST(Params, HuggingFaceNamesCoverEveryParameterOnce) {
    for (const bool tied : {false, true}) {
        ModelConfig model = kModel;
        model.tied = tied;
        const ParameterTable table = parameter_table(model, 0.02);
        std::vector<int> seen(size_t(table.size));
        for (const HfTensor& t : hf_tensors(model, table))
            for (int64_t i = 0; i < t.rows * t.cols; ++i) ++seen[size_t(t.offset + i)];
        for (const Parameter& p : table.list) {
            EXPECT_EQ(p.offset % 64, 0);
            for (int64_t i = 0; i < p.size(); ++i) EXPECT_EQ(seen[size_t(p.offset + i)], 1) << p.name;
        }
        EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), table.count()) << "padding has a name";
        EXPECT_EQ(table.list.back().name, tied ? "model.norm.weight" : "lm_head.weight");
    }
}

TEST(Params, ShapesAreThoseOfLlama) {
    const ParameterTable table = parameter_table(kModel, 0.02);
    const auto shape = [&](const std::string& name) -> std::pair<int64_t, int64_t> {
        for (const HfTensor& t : hf_tensors(kModel, table))
            if (t.name == name) return {t.rows, t.cols};
        return {};
    };
    using Shape = std::pair<int64_t, int64_t>;
    EXPECT_EQ(shape("model.embed_tokens.weight"), Shape(37, 96));
    EXPECT_EQ(shape("model.layers.2.self_attn.q_proj.weight"), Shape(96, 96));
    EXPECT_EQ(shape("model.layers.2.self_attn.k_proj.weight"), Shape(32, 96));
    EXPECT_EQ(shape("model.layers.2.self_attn.v_proj.weight"), Shape(32, 96));
    EXPECT_EQ(shape("model.layers.0.self_attn.o_proj.weight"), Shape(96, 96));
    EXPECT_EQ(shape("model.layers.0.mlp.gate_proj.weight"), Shape(80, 96));
    EXPECT_EQ(shape("model.layers.0.mlp.up_proj.weight"), Shape(80, 96));
    EXPECT_EQ(shape("model.layers.0.mlp.down_proj.weight"), Shape(96, 80));
    EXPECT_EQ(shape("model.norm.weight"), Shape(1, 96));
}

// Every rank runs the same function; here as threads at the same time, each with its own number of OpenMP
// threads.
TEST(Params, InitialValuesAreTheSameOnEveryRankAndNumberOfThreads) {
    const std::vector<float> expected = initial(kModel, 5);
    for (const int ranks : {1, 2, 4}) {
        std::vector<std::vector<float>> values{size_t(ranks)};
        std::vector<std::thread> threads;
        for (int rank = 0; rank < ranks; ++rank)
            threads.emplace_back([&, rank] {
                omp_set_num_threads(rank % 2 + 1);
                values[size_t(rank)] = initial(kModel, 5);
            });
        for (std::thread& thread : threads) thread.join();
        for (const auto& mine : values) EXPECT_EQ(mine, expected) << ranks << " ranks";
    }
    EXPECT_NE(initial(kModel, 6), expected);
    EXPECT_NE(initial(kModel, 5 + (uint64_t(1) << 32)), expected) << "a seed's high bits";
}

TEST(Params, InitialValuesAreNormalOfTheDocumentedWidth) {
    const ModelConfig model = {.layers = 2, .width = 256, .heads = 4, .mlp = 512, .vocab = 1000};
    const ParameterTable table = parameter_table(model, 0.02);
    const std::vector<float> values = initial(model, 1);
    for (const Parameter& p : table.list) {
        if (p.kind == ParameterKind::norm) {
            for (int64_t i = 0; i < p.size(); ++i) EXPECT_EQ(values[size_t(p.offset + i)], 1.0f);
            continue;
        }
        const bool output = p.name.ends_with("o_proj.weight") || p.name.ends_with("down_proj.weight");
        const double std = output ? 0.02 / std::sqrt(2.0 * 2) : 0.02, n = double(p.size());
        double sum = 0, squares = 0, fourths = 0;
        for (int64_t i = 0; i < p.size(); ++i) {
            const double z = values[size_t(p.offset + i)] / std;
            sum += z, squares += z * z, fourths += z * z * z * z;
        }
        EXPECT_LT(std::abs(sum / n), 5 / std::sqrt(n)) << p.name;
        EXPECT_LT(std::abs(squares / n - 1), 5 * std::sqrt(2 / n)) << p.name;
        EXPECT_LT(std::abs(fourths / n - 3), 5 * std::sqrt(96 / n)) << p.name;
    }
}

// One seed, and yet no two tensors of a size share their draws.
TEST(Params, TensorsDrawApart) {
    const ParameterTable table = parameter_table(kModel, 0.02);
    const std::vector<float> values = initial(kModel, 1);
    for (const Parameter& a : table.list)
        for (const Parameter& b : table.list) {
            if (a.offset >= b.offset || a.init_std == 0 || b.init_std == 0) continue;
            int same = 0;
            for (int64_t i = 0; i < 64; ++i)
                same +=
                    values[size_t(a.offset + i)] / a.init_std == values[size_t(b.offset + i)] / b.init_std;
            EXPECT_LT(same, 4) << a.name << " and " << b.name;
        }
}

}  // namespace
}  // namespace q2
