// The memory plan: what the counting arena says is what a run takes, and evaluations fit inside.
#include "train/training_memory.h"

#include "linear/recipes.h"
#include "ops/backend.h"
#include "tests/support/tiny_run.h"

namespace q2::test {
namespace {

std::vector<Config> shapes() {
    const TinyRun tiny;
    std::vector<Config> all;
    for (const Recipe& recipe : builtin_recipes())
        for (const std::string batch : {"1", "4", "64"})
            for (const std::string act : {"float32", "bfloat16"})
                all.push_back(tiny.config({"precision.recipe=" + recipe.name, "model.activations=" + act,
                                           "train.eval_micro_batch=" + batch}));
    all.push_back(tiny.config({"precision.switch=[{\"at\": 3, \"recipe\": \"bf16\"}]"}));
    all.push_back(tiny.config({"model.tied=true", "model.kv_heads=1", "precision.keep_bf16.last=1"}));
    return all;
}

bool lies_in(const Tensor& t, const char* begin, size_t bytes) {
    const char* data = static_cast<const char*>(t.data);
    return data >= begin && data + t.bytes() <= begin + bytes;
}

TEST(TrainingMemory, TheCountIsWhatARunTakes) {
    for (const Config& config : shapes()) {
        Arena count;
        carve_training(config, *cpu_ops(), count);
        std::vector<char> bytes(count.used() + Arena::kAlignment);
        void* base = bytes.data();
        size_t space = bytes.size();
        ASSERT_TRUE(std::align(Arena::kAlignment, count.used(), base, space));
        Arena arena(base, count.used());
        const TrainingMemory memory = carve_training(config, *cpu_ops(), arena);
        EXPECT_EQ(arena.used(), count.used());
        size_t sum = 0;
        for (int use = 0; use < int(Use::count); ++use) {
            EXPECT_EQ(arena.used_for(Use(use)), count.used_for(Use(use))) << name_of(Use(use));
            sum += count.used_for(Use(use));
        }
        EXPECT_EQ(sum, count.used());

        const char* begin = static_cast<char*>(base);
        for (const Activations* act : {&memory.train, &memory.eval})
            for (const Tensor& t : {act->blocks[0].attention_sum, act->hidden, act->branch, act->logits,
                                    act->losses, act->workspace.a, act->workspace.b})
                EXPECT_TRUE(lies_in(t, begin, count.used()));
        for (const Tensor& t : {memory.model.params, memory.model.grads, memory.moment1, memory.moment2,
                                memory.model.head_kept, memory.ids, memory.targets})
            EXPECT_FALSE(lies_in({memory.eval.losses.data, Dtype::u8, 1, 1}, static_cast<const char*>(t.data),
                                 t.bytes()));
    }
}

TEST(TrainingMemory, InferenceTakesNoGradientsOrMoments) {
    for (const Config& config : shapes()) {
        Arena count;
        const TrainingMemory memory = carve_inference(config, *cpu_ops(), 3, count);
        EXPECT_EQ(count.used_for(Use::gradients), 0u);
        EXPECT_LE(count.used_for(Use::optimizer), Arena::kAlignment) << "the step's state alone";
        EXPECT_EQ(memory.eval.shape.batch, 3);
        EXPECT_EQ(memory.eval.tokens(), 3 * config.data.sequence);
    }
}

// What the recipe starts from the quantised copy is kept as 4.5 bits an element.
TEST(TrainingMemory, SavedInputsAreCodes) {
    const TinyRun tiny;
    const auto activations = [&](const std::string& recipe, int64_t mlp) {
        Arena count;
        carve_training(
            tiny.config({"precision.recipe=" + recipe, "train.micro_batch=64", concat("model.mlp=", mlp)}),
            *cpu_ops(), count);
        double sum = 0;
        for (const Use use : {Use::activations, Use::linear_inputs, Use::mlp})
            sum += double(count.used_for(use));
        return sum;
    };
    const double tokens = 64 * 32, more = 1024 - 512;
    const auto growth = [&](const std::string& recipe) {
        return (activations(recipe, 1024) - activations(recipe, 512)) / (tokens * more);
    };
    // Two blocks: gate and up (2 x 2 bytes) each, and down's input: 2 bytes kept, or 9/16. Once: the shared
    // SwiGLU output and its gradient, 2 bytes each.
    EXPECT_NEAR(growth("bf16"), 2 * (4 + 2) + 4, 0.01);
    EXPECT_NEAR(growth("quartet2"), 2 * (4 + 0.5625) + 4, 0.01);
}

}  // namespace
}  // namespace q2::test
