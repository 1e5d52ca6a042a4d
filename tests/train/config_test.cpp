// Configs: the shipped files, round trips, what is refused, and docs/CONFIG.md against the declarations.
#include "train/config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "linear/recipes.h"

namespace q2 {
namespace {

const std::string kSource = QUARTET2_SOURCE_DIR;
const std::string kDemo = kSource + "/configs/demo.json";

void expect_refused(const std::vector<std::string>& overrides, const std::string& part,
                    Exit code = Exit::config) {
    try {
        load_config(kDemo, overrides);
        ADD_FAILURE() << overrides.back() << " was accepted";
    } catch (const Error& e) {
        EXPECT_EQ(int(e.code), int(code)) << e.what();
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what() << "\n  lacks: " << part;
    }
}

TEST(Config, ShippedFilesAreValid) {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(kSource + "/configs")) {
        if (entry.path().extension() != ".json") continue;
        EXPECT_NO_THROW(load_config(entry.path())) << entry.path();
        ++count;
    }
    EXPECT_GE(count, 5u);
}

TEST(Config, TheFamilyIsThePapers) {
    struct Row {
        const char* name;
        int64_t layers, width, heads, mlp;
        double lr;
    };
    for (const Row& row : {Row{"30m", 6, 640, 5, 1792, 1.2e-3}, Row{"50m", 7, 768, 6, 2048, 1.2e-3},
                           Row{"100m", 8, 1024, 8, 2816, 9e-4}, Row{"200m", 10, 1280, 10, 3584, 7.2e-4}}) {
        const Config c = load_config(kSource + "/configs/llama-" + row.name + ".json");
        EXPECT_EQ(c.model.layers, row.layers);
        EXPECT_EQ(c.model.width, row.width);
        EXPECT_EQ(c.model.heads, row.heads);
        EXPECT_EQ(c.model.mlp, row.mlp);
        EXPECT_EQ(c.model.vocab, 32000);
        EXPECT_FALSE(c.model.tied);
        EXPECT_EQ(c.optimizer.lr, row.lr);
        EXPECT_EQ(c.step_sequences(), 512);
        EXPECT_EQ(c.data.sequence, 512);
        EXPECT_EQ(c.optimizer.decay, "linear");
        EXPECT_EQ(c.schedule.warmup, 0.1);
    }
}

TEST(Config, ResolvedConfigReadsBack) {
    const Config c = load_config(kDemo, {"train.seed=18446744073709551615",
                                         "precision.switch=[{\"at\": 0.5, "
                                         "\"recipe\": \"bf16\"}]"});
    const nlohmann::ordered_json resolved = config_to_json(c);
    EXPECT_EQ(resolved["train"]["seed"].get<uint64_t>(), UINT64_MAX);
    EXPECT_EQ(resolved["precision"]["keep_bf16"]["first"], 0);
    EXPECT_EQ(config_to_json(config_from_json(nlohmann::json::parse(resolved.dump()), "run")), resolved);
}

TEST(Config, EachSettingIsDeclaredOnceWithAGoodDefault) {
    Config config;
    std::set<std::string> names;
    std::set<const void*> members;
    for (const Field& field : fields(config)) {
        EXPECT_TRUE(names.insert(field.name).second) << field.name << " is declared twice";
        const void* member = std::visit([](auto* m) -> const void* { return m; }, field.target);
        EXPECT_TRUE(members.insert(member).second) << field.name << " shares its member with another field";
        EXPECT_FALSE(field.help.empty()) << field.name;
        EXPECT_NO_THROW(field.assign(field.value(), "defaults"))
            << field.name << ": default outside its range";
    }
}

TEST(Config, WidthsThatDoNotDivideNameGoodSizes) {
    expect_refused({"model.heads=3"}, "model.heads = 3: must divide model.width = 128 (2 and 4 are near)");
    expect_refused({"model.width=768", "model.heads=10", "model.kv_heads=4"}, "(8 and 12 are near)");
    expect_refused({"model.kv_heads=3"}, "model.kv_heads = 3: must divide model.heads = 2");
    expect_refused({"model.head_size=33"}, "must be even");
    expect_refused({"model.width=192"}, "model.width = 192: recipe quartet2");
    expect_refused({"model.width=192"}, "needs a multiple of 128; 128 and 256 are near");
    expect_refused({"model.mlp=400"}, "model.mlp = 400");
    expect_refused({"model.head_size=36"}, "model.heads * head_size = 72");
    expect_refused({"precision.recipe=nvidia", "model.mlp=40"}, "needs a multiple of 16; 32 and 48 are near");
    expect_refused({"precision.switch=[{\"at\": 5, \"recipe\": \"quartet2\"}]", "precision.recipe=bf16",
                    "model.mlp=400"},
                   "recipe quartet2");
    EXPECT_NO_THROW(load_config(kDemo, {"precision.recipe=bf16", "model.width=100", "model.mlp=77"}));
    EXPECT_NO_THROW(load_config(kDemo, {"precision.recipe=nvidia", "model.width=160", "model.mlp=400"}));
    EXPECT_NO_THROW(load_config(kDemo, {"model.kv_heads=1", "model.heads=2"}));
}

TEST(Config, BatchesAndSchedules) {
    expect_refused({"parallel.gpus=2", "train.accumulate=3"},
                   "train.accumulate = 3: parallel.gpus needs a multiple "
                   "of 2; 2 and 4 are near");
    expect_refused({"train.micro_batch=1000000"}, "with data.sequence = 128 at most 524288");
    expect_refused({"train.accumulate=1000000", "train.micro_batch=524288", "train.steps=2147483647"},
                   "2^63");
    expect_refused({"train.steps=800", "schedule.warmup=900"},
                   "schedule.warmup = 900: longer than the run, train.steps = 800");
    expect_refused({"schedule.warmup=1.5"}, "whole number of steps");
    expect_refused({"schedule.kind=wsd", "schedule.warmup=0.5", "schedule.decay_fraction=0.6"},
                   "schedule.decay_fraction = 0.6");
    expect_refused({"optimizer.beta2=1"}, "optimizer.beta2 = 1: must be 0 to below 1");
    expect_refused({"data.train=[]"}, "data.train is empty");
    expect_refused({"data.val=[]"}, "data.val is empty");
    EXPECT_NO_THROW(load_config(kDemo, {"data.val=[]", "train.eval_every=0"}));
    expect_refused({"train.micro_batch=1", "data.sequence=24", "train.eval_micro_batch=2",
                    "precision.recipe={\"base\": \"nvidia\", \"fprop\": {\"a\": {\"grid\": \"16x16\"}}}"},
                   "train.micro_batch * data.sequence = 24");
}

TEST(Config, KeptLayers) {
    expect_refused({"precision.keep_bf16.names=out_proj"}, "must be qkv_proj, o_proj");
    expect_refused({"precision.keep_bf16.names=layers.4.o_proj"}, "of 4 blocks");
    for (const char* wrong : {"layers.", "layers.1", "layers.1.", "layers.-1.o_proj", "layers.x.o_proj",
                              "layers..o_proj", "layers.99999999999999999999.o_proj", "layers.1o_proj"})
        expect_refused({std::string("precision.keep_bf16.names=") + wrong}, "must be qkv_proj, o_proj");
    const KeepBf16Config keep = {.first = 1, .last = 2, .names = {"o_proj", "layers.2.down_proj"}};
    EXPECT_TRUE(keeps_bf16(keep, 0, 8, "qkv_proj"));
    EXPECT_FALSE(keeps_bf16(keep, 1, 8, "qkv_proj"));
    EXPECT_FALSE(keeps_bf16(keep, 5, 8, "qkv_proj"));
    EXPECT_TRUE(keeps_bf16(keep, 6, 8, "qkv_proj"));
    EXPECT_TRUE(keeps_bf16(keep, 4, 8, "o_proj"));
    EXPECT_TRUE(keeps_bf16(keep, 2, 8, "down_proj"));
    EXPECT_FALSE(keeps_bf16(keep, 3, 8, "down_proj"));
    EXPECT_FALSE(keeps_bf16({}, 0, 1, "o_proj"));
}

TEST(Config, AnOverrideOfARecipesFieldEditsTheNamedRecipe) {
    const Recipe edited =
        recipe_plan(load_config(kDemo, {"precision.recipe.dgrad.a.round=stochastic"})).switches[0].recipe;
    EXPECT_EQ(edited.dgrad.a.rounding, Rounding::stochastic);
    EXPECT_EQ(edited.dgrad.b, find_recipe("quartet2").dgrad.b);
    EXPECT_EQ(edited.fprop, find_recipe("quartet2").fprop);
    EXPECT_EQ(recipe_plan(load_config(kDemo, {"precision.recipe.base=nvidia"})).switches[0].recipe.wgrad,
              find_recipe("nvidia").wgrad);
}

TEST(Config, RecipePlan) {
    const Config c = load_config(
        kDemo,
        {"train.steps=800",
         "precision.switch=[{\"at\": 0.5, \"recipe\": {\"base\": \"quartet2\", \"name\": \"sr\", \"dgrad\": "
         "{\"a\": {\"round\": \"stochastic\"}}}}, {\"at\": 700, \"recipe\": \"bf16\"}]"});
    const std::vector<RecipeSwitch> plan = recipe_plan(c).switches;
    ASSERT_EQ(plan.size(), 3u);
    EXPECT_EQ(plan[0].step, 0);
    EXPECT_EQ(plan[0].recipe, find_recipe("quartet2"));
    EXPECT_EQ(plan[1].step, 400);
    EXPECT_EQ(plan[1].recipe.name, "sr");
    EXPECT_EQ(plan[2].step, 700);
    auto refused = [](const std::string& list, const std::string& part) {
        expect_refused({"train.steps=800", "precision.switch=" + list}, part);
    };
    refused("[{\"at\": 0.8, \"recipe\": \"bf16\"}, {\"at\": 100, \"recipe\": \"nvidia\"}]",
            "precision.switch[1].at: step 100 must come after step 640");
    refused("[{\"at\": 800, \"recipe\": \"bf16\"}]", "the run has 800 steps");
    refused("[{\"at\": 0, \"recipe\": \"bf16\"}]", "must be above 0");
    refused("[{\"at\": 1.5, \"recipe\": \"bf16\"}]", "whole step");
    refused("[{\"at\": 0.5}]", "precision.switch[0]: needs both at and recipe");
    refused("[{\"at\": 0.5, \"recipe\": \"fp8\"}]", "precision.switch[0].recipe = \"fp8\"");
    refused("[{\"on\": 0.5}]", "precision.switch[0]: on: no such key");
    refused("bf16", "must be a list");
}

TEST(Config, MessagesNameTheFile) {
    expect_refused({"model.heads=3"}, kDemo + " with --set model.heads=3: model.heads = 3: must divide");
    expect_refused({"precision.keep_bf16.last=5"},
                   "keep_bf16.last = 5: the model has model.layers = 4 blocks");
    expect_refused({"optimizer.eps=1e-300"}, "optimizer.eps = 1e-300: must be 1e-30 to 1e+30");
    expect_refused({"model.vocab=300"}, "model.vocab = 300: bytes, data.tokenizer, are 256 tokens");
    expect_refused({"model.hedas=3"},
                   "--set model.hedas=3: model.hedas: no such key; did you mean model.heads?");
    expect_refused({"train.lr=3"}, "did you mean optimizer.lr?");
    expect_refused({"model.heads"}, "write key=value", Exit::usage);
    EXPECT_THROW(load_config("none.json"), Error);
}

TEST(Config, MarkdownIsUpToDate) {
    std::ifstream file(kSource + "/docs/CONFIG.md");
    std::ostringstream text;
    text << file.rdbuf();
    EXPECT_TRUE(text.str() == config_markdown())
        << "docs/CONFIG.md is stale; rewrite it: build/quartet2 config --markdown > docs/CONFIG.md";
}

}  // namespace
}  // namespace q2
