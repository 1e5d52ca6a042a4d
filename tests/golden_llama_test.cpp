// The whole model, forward, backward and AdamW, against the golden Llama files (Hugging Face's
// LlamaForCausalLM in float64), on every backend.
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/support/device.h"
#include "tests/support/golden.h"
#include "train/optimizer.h"

namespace q2::test {
namespace {

Config golden_config(const SafetensorsFile& file, const std::string& type) {
    const auto json = nlohmann::json::parse(file.metadata().at("config"));
    Config c;
    c.model.layers = json.at("num_hidden_layers");
    c.model.width = json.at("hidden_size");
    c.model.heads = json.at("num_attention_heads");
    c.model.kv_heads = json.at("num_key_value_heads");
    c.model.mlp = json.at("intermediate_size");
    c.model.vocab = json.at("vocab_size");
    c.model.tied = json.at("tie_word_embeddings");
    c.model.rope_theta = json.at("rope_theta");
    c.model.norm_eps = json.at("rms_norm_eps");
    c.model.activations = type;
    c.data.sequence = json.at("seq_len");
    c.train.micro_batch = c.train.eval_micro_batch = json.at("batch");
    c.train.accumulate = 1;
    c.precision.recipe = "bf16";
    c.optimizer = {.lr = 1e-3, .decay = "matrices", .clip = 1.0};
    return c;
}

/// The golden model on a backend, its first weights loaded.
class GoldenModel {
  public:
    GoldenModel(Context& ctx, const SafetensorsFile& file, const std::string& type)
        : ctx_(ctx),
          config_(golden_config(file, type)),
          scratch_(ctx, training_scratch(config_, *ctx.ops)),
          memory_(ctx, bytes_needed()),
          arena_(memory_.data(), memory_.bytes()),
          training_(carve_training(config_, *ctx.ops, arena_)) {
        upload_rope_table(ctx, training_.model);
        for (const HfTensor& t : hf_tensors(config_.model, training_.model.table)) {
            const auto values = golden_values<float>(file, "init." + t.name);
            ctx.ops->upload(ctx, training_.model.params.as<float>() + t.offset, values.data(),
                            values.size() * 4);
        }
        for (const Tensor& moment : {training_.moment1, training_.moment2})
            ctx.ops->zero(ctx, moment.data, moment.bytes());
        load_tokens(golden_values<int32_t>(file, "tokens"));
    }

    /// One forward and backward and, with `update`, AdamW; the state after it.
    StepState step(int64_t number, bool update) {
        StepState s;
        s.learning_rate = float(config_.optimizer.lr);
        s.moment1_correction = float(1 - std::pow(config_.optimizer.beta1, double(number + 1)));
        s.moment2_correction = float(1 - std::pow(config_.optimizer.beta2, double(number + 1)));
        ctx_.ops->upload(ctx_, training_.state, &s, sizeof(s));
        ctx_.ops->zero(ctx_, training_.model.grads.data, training_.model.grads.bytes());
        select_recipes(training_.model, 0);
        prepare_weights(ctx_, training_.model, training_.state, false);
        const Pass pass{
            ctx_, training_.model, training_.train, training_.state, training_.ids, training_.targets, {}};
        forward(pass);
        head(pass, &training_.state->loss, 1.0f / float(training_.train.tokens()), true);
        backward(pass);
        if (update) optimizer_update(ctx_, training_, config_.optimizer);
        ctx_.ops->download(ctx_, &s, training_.state, sizeof(s));
        return s;
    }
    std::vector<float> gradient(const HfTensor& t) const {
        std::vector<float> values(size_t(t.rows * t.cols));
        ctx_.ops->download(ctx_, values.data(), training_.model.grads.as<float>() + t.offset,
                           values.size() * 4);
        return values;
    }
    std::vector<HfTensor> tensors() const { return hf_tensors(config_.model, training_.model.table); }

  private:
    size_t bytes_needed() const {
        Arena count;
        carve_training(config_, *ctx_.ops, count);
        return count.used();
    }
    void load_tokens(const std::vector<int32_t>& tokens) {
        const int64_t sequence = config_.data.sequence;
        std::vector<int32_t> ids, targets;
        for (int64_t b = 0; b < config_.train.micro_batch; ++b)
            for (int64_t t = 0; t < sequence; ++t) {
                ids.push_back(tokens[size_t(b * (sequence + 1) + t)]);
                targets.push_back(tokens[size_t(b * (sequence + 1) + t + 1)]);
            }
        ctx_.ops->upload(ctx_, training_.ids.data, ids.data(), ids.size() * 4);
        ctx_.ops->upload(ctx_, training_.targets.data, targets.data(), targets.size() * 4);
        ctx_.ops->synchronize(ctx_);
    }

    Context& ctx_;
    Config config_;
    LentScratch scratch_;
    DeviceMemory memory_;
    Arena arena_;
    TrainingMemory training_;
};

class GoldenLlama : public testing::TestWithParam<const char*> {};

TEST_P(GoldenLlama, Float32LossAndGradientsAgree) {
    OPEN_BACKEND_OR_SKIP(backend, GetParam());
    const bool cpu = std::string(GetParam()) == "cpu";
    SKIP_WITHOUT_GOLDEN("llama_");
    for (const std::string& path : golden_files("llama_")) {
        const SafetensorsFile file(path);
        GoldenModel model(backend->context(), file, "float32");
        const double loss = golden_values<float>(file, "loss")[0];
        EXPECT_NEAR(model.step(0, false).loss, loss, (cpu ? 1e-5 : 1e-4) * loss) << path;
        for (const HfTensor& t : model.tensors())
            EXPECT_LT(relative_l2(model.gradient(t), golden_values<float>(file, "grad." + t.name)),
                      cpu ? 1e-4 : 1e-3)
                << path << ": gradient of " << t.name;
    }
}

TEST_P(GoldenLlama, TwelveAdamWStepsAgree) {
    OPEN_BACKEND_OR_SKIP(backend, GetParam());
    SKIP_WITHOUT_GOLDEN("llama_");
    for (const std::string& path : golden_files("llama_")) {
        const SafetensorsFile file(path);
        GoldenModel model(backend->context(), file, "float32");
        const auto losses = golden_values<float>(file, "trajectory.loss");
        const auto norms = golden_values<float>(file, "trajectory.grad_norm");
        for (size_t i = 0; i < losses.size(); ++i) {
            const StepState s = model.step(int64_t(i), true);
            EXPECT_NEAR(s.loss, losses[i], 2e-4 * losses[i]) << path << ": step " << i;
            EXPECT_NEAR(s.grad_norm, norms[i], 1e-3 * norms[i]) << path << ": step " << i;
        }
    }
}

TEST_P(GoldenLlama, Bfloat16LossAndGradientsAgree) {
    OPEN_BACKEND_OR_SKIP(backend, GetParam());
    SKIP_WITHOUT_GOLDEN("llama_");
    for (const std::string& path : golden_files("llama_")) {
        const SafetensorsFile file(path);
        GoldenModel model(backend->context(), file, "bfloat16");
        EXPECT_NEAR(model.step(0, false).loss, golden_values<float>(file, "loss")[0], 1e-2) << path;
        for (const HfTensor& t : model.tensors())
            EXPECT_LT(relative_l2(model.gradient(t), golden_values<float>(file, "grad." + t.name)), 3e-2)
                << path << ": gradient of " << t.name;
    }
}

INSTANTIATE_TEST_SUITE_P(Backends, GoldenLlama, testing::Values("cpu", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace q2::test
