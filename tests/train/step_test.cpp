// Steps and evaluations: how a batch is cut must not matter, and what is not finite is caught and found.
#include "train/step.h"

#include <cmath>
#include <limits>

#include "tests/support/device.h"
#include "tests/support/tiny_training.h"

namespace q2::test {
namespace {

const Overrides kFloat32 = {"precision.recipe=bf16", "model.activations=float32"};
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Step, MicroBatchesAddUpToOneBatch) {
    const TinyRun tiny;
    TinyTraining whole(tiny.config(kFloat32 + Overrides{"train.micro_batch=8", "train.accumulate=1"}));
    const StepState all = train_step(whole.training, 2);
    const std::vector<float> gradient = whole.copy(whole.session.memory().model.grads);
    for (const std::string cut : {"1", "2", "4"}) {
        TinyTraining parts(
            tiny.config(kFloat32 + Overrides{"train.micro_batch=" + cut,
                                             concat("train.accumulate=", 8 / std::stoi(cut))}));
        const StepState sum = train_step(parts.training, 2);
        EXPECT_NEAR(sum.loss, all.loss, 1e-5) << cut;
        EXPECT_NEAR(sum.grad_norm, all.grad_norm, 1e-5 * all.grad_norm) << cut;
        EXPECT_LT(relative_l2(parts.copy(parts.session.memory().model.grads), gradient), 1e-5) << cut;
    }
}

TEST(Step, ClippingAndTheLearningRateReachTheUpdate) {
    const TinyRun tiny;
    TinyTraining run(tiny.config({"optimizer.clip=0.25", "schedule.start=0"}));
    const std::vector<float> before = run.copy(run.session.memory().model.params);
    const StepState first = train_step(run.training, 0);
    EXPECT_EQ(first.learning_rate, 0.0f);
    EXPECT_EQ(run.copy(run.session.memory().model.params), before) << "a step of learning rate 0";
    EXPECT_NEAR(first.clip_factor, 0.25 / first.grad_norm, 1e-5);
    train_step(run.training, 1);
    EXPECT_NE(run.copy(run.session.memory().model.params), before);
}

double mean_loss(const TinyRun& tiny, const std::string& batch, const std::string& batches = "0") {
    TinyTraining run(tiny.config(kFloat32 + Overrides{"train.eval_micro_batch=" + batch}));
    return evaluate(run.training, run.val, 0, std::stoi(batches));
}

// 10 windows: micro-batches of 4 leave a part of 2, of 16 fill themselves up.
TEST(Step, EvaluationDoesNotDependOnItsMicroBatch) {
    const TinyRun tiny;
    const double one = mean_loss(tiny, "1");
    for (const std::string batch : {"2", "3", "4", "10", "16"})
        EXPECT_NEAR(mean_loss(tiny, batch), one, 2e-6) << batch;
}

TEST(Step, AnEvaluationIsTheMeanOverItsWindows) {
    const TinyRun tiny;
    EXPECT_EQ(mean_loss(tiny, "2", "5"), mean_loss(tiny, "2")) << "5 micro-batches are all of it";
    EXPECT_EQ(mean_loss(tiny, "2", "9"), mean_loss(tiny, "2")) << "more than there are";
    EXPECT_NEAR(mean_loss(tiny, "2", "2"), mean_loss(tiny, "4", "1"), 2e-6) << "the first 4 windows";
    EXPECT_GT(std::abs(mean_loss(tiny, "1", "1") - mean_loss(tiny, "4", "1")), 1e-4);
}

/// A step that must be caught: flagged, without an update, and reported in these words.
void expect_caught(TinyTraining& run, int64_t step, std::initializer_list<std::string> parts) {
    const TrainingMemory& m = run.session.memory();
    const auto state_of = [&] {
        std::string bytes;
        for (const Tensor& t : {m.model.params, m.moment1, m.moment2})
            bytes.append(static_cast<const char*>(t.data), t.bytes());
        return bytes;
    };
    const std::string before = state_of();
    const StepState state = train_step(run.training, step);
    EXPECT_NE(state.skip, 0u);
    EXPECT_TRUE(state_of() == before) << "weights or moments changed";
    expect_error(Exit::non_finite, parts, [&] { report_non_finite(run.training, step, state); });
    EXPECT_TRUE(state_of() == before) << "the report changed weights or moments";
}

TEST(NonFinite, AWeightIsNamed) {
    const TinyRun tiny;
    struct Plant {
        const char* name;
        int64_t index;
        float value;
    };
    for (const auto& [name, index, value] :
         {Plant{"model.embed_tokens.weight", ' ' * 128, kInfinity},
          Plant{"model.layers.1.mlp.down_proj.weight", 777, kNaN},
          Plant{"model.layers.0.input_layernorm.weight", 5, -kInfinity}, Plant{"lm_head.weight", 3, kNaN}})
        for (const std::string recipe : {"quartet2", "nvidia", "bf16"}) {
            SCOPED_TRACE(concat(recipe, ": ", name));
            TinyTraining run(tiny.config({"precision.recipe=" + recipe}));
            train_step(run.training, 0);
            run.weights(name)[index] = value;
            expect_caught(run, 1,
                          {"step 2 of 8", "not updated", concat("The weight ", name, " holds 1 values")});
        }
}

// Token 255 stands once in the data. Its embedding alone has a column 0, which nothing else writes and which
// makes both SwiGLU factors 1e20: their product overflows, in its micro-batch alone.
TEST(NonFinite, TheFirstBadTensorIsFoundWithItsMicroBatchAndData) {
    const TinyRun tiny;
    std::string text = read_bytes(QUARTET2_SOURCE_DIR "/data/demo.txt").substr(2000, 1500);
    text[700] = char(255);
    const std::string path = tiny / "train.bin";
    TinyRun::write_tokens(path, text);
    TinyTraining run(tiny.config());
    int64_t sample = 0;
    while (run.data.location(sample).offset != 700 / 32 * 32) ++sample;
    const int64_t step = sample / 8, micro_batch = sample % 8 / 4;
    const int64_t offset = run.data.location(step * 8 + micro_batch * 4).offset;

    float* embedding = run.weights("model.embed_tokens.weight");
    for (int64_t token = 0; token < 256; ++token) embedding[token * 128] = 0;
    std::fill_n(embedding + 255 * 128, 128, 0.0f);
    embedding[255 * 128] = 1e3f;
    for (int64_t c = 0; c < 128; ++c) run.weights("model.layers.0.self_attn.o_proj.weight")[c] = 0;
    for (int64_t row = 0; row < 256; ++row)
        run.weights("model.layers.0.mlp.gate_up_proj.weight")[row * 128] = 1e19f;

    expect_caught(run, step,
                  {concat("step ", step + 1), concat("First in micro-batch ", micro_batch), path,
                   concat("token ", offset), "layers.0.mlp.swiglu holds"});
    const StepState other = train_step(run.training, step == 0 ? 1 : 0);
    EXPECT_EQ(other.skip, 0u) << "a step without the token";
}

}  // namespace
}  // namespace q2::test
