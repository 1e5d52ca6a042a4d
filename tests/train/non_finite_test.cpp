// NaN and infinities planted in weights, in what every op makes, and in gradients: caught at that step,
// named, and nothing changed; in every built-in recipe, on the CPU and on a GPU.
#include <limits>
#include <memory>

#include "linear/recipes.h"
#include "tests/support/device.h"
#include "tests/support/tiny_training.h"

namespace q2::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kBad[] = {kNaN, kInfinity, -kInfinity};

enum class Slot {
    embedding,
    norm,
    rope,
    attention,
    swiglu,
    matmul,
    quantize,
    quantize_gradient,
    cross_entropy,
    norm_backward,
    norm_weight_gradient,
    attention_backward,
    swiglu_backward,
    embedding_backward,
    none
};
constexpr const char* kSlotNames[] = {"embedding",
                                      "norm",
                                      "rope",
                                      "attention",
                                      "swiglu",
                                      "matmul",
                                      "quantize",
                                      "quantize_gradient",
                                      "cross_entropy",
                                      "norm_backward",
                                      "norm_weight_gradient",
                                      "attention_backward",
                                      "swiglu_backward",
                                      "embedding_backward"};

/// What the report must name, where it is the op's own result.
constexpr const char* kNamed[] = {"model.embed_tokens holds",
                                  "norm holds 1 ",
                                  "self_attn",
                                  "self_attn holds",
                                  "mlp.swiglu holds 1 ",
                                  " holds ",
                                  " holds ",
                                  " holds ",
                                  "the loss's gradient holds 1 ",
                                  " holds ",
                                  "the gradient of model.",
                                  "self_attn's input gradient holds",
                                  "mlp.swiglu's input gradient holds 1 ",
                                  "the gradient of model.embed_tokens.weight holds 1 "};

/// A table that writes a bad value into the first element of what the chosen call of a slot made.
class Poisoner : public Ops {
  public:
    explicit Poisoner(Context& ctx) : Ops(*ctx.ops), real_(*ctx.ops), ctx_(ctx) {
        embedding_forward = [](Context& c, Tensor out, Tensor table, Tensor ids) {
            of(c).real_.embedding_forward(c, out, table, ids);
            of(c).made(Slot::embedding, out);
        };
        residual_rmsnorm_forward = [](Context& c, Tensor out, Tensor rstd, Tensor sum, Tensor residual,
                                      Tensor branch, Tensor weight, float eps, Amax* amax) {
            of(c).real_.residual_rmsnorm_forward(c, out, rstd, sum, residual, branch, weight, eps, amax);
            of(c).made(Slot::norm, out, amax);
        };
        rope = [](Context& c, Tensor qkv, Tensor table, AttentionShape shape, Direction direction) {
            of(c).real_.rope(c, qkv, table, shape, direction);
            of(c).made(Slot::rope, qkv);
        };
        attention_forward = [](Context& c, Tensor out, Tensor lse, Tensor qkv, AttentionShape shape,
                               Amax* amax) {
            of(c).real_.attention_forward(c, out, lse, qkv, shape, amax);
            of(c).made(Slot::attention, out, amax);
        };
        swiglu_forward = [](Context& c, Tensor out, Tensor gate_up, Amax* amax) {
            of(c).real_.swiglu_forward(c, out, gate_up, amax);
            of(c).made(Slot::swiglu, out, amax);
        };
        matmul = [](Context& c, Tensor out, Operand a, Operand b, bool accumulate) {
            of(c).real_.matmul(c, out, a, b, accumulate);
            of(c).made(Slot::matmul, out);
        };
        quantize = [](Context& c, const Quantized& out, Operand source, const Amax* amax,
                      const QuantSpec& spec, const Rotation& rotation, const Address& address) {
            of(c).real_.quantize(c, out, source, amax, spec, rotation, address);
            of(c).made(Slot::quantize, out.tensor_scale);
        };
        quantize_gradient = [](Context& c, const Quantized* rows, const Quantized* columns, Tensor e,
                               const GemmSpec& dgrad, const GemmSpec& wgrad, const Address& at,
                               const Address& at2) {
            of(c).real_.quantize_gradient(c, rows, columns, e, dgrad, wgrad, at, at2);
            of(c).made(Slot::quantize_gradient, (columns ? columns : rows)->tensor_scale);
        };
        cross_entropy = [](Context& c, Tensor losses, Tensor logits, Tensor targets, float scale, bool want) {
            of(c).real_.cross_entropy(c, losses, logits, targets, scale, want);
            of(c).made(Slot::cross_entropy, logits);
        };
        residual_rmsnorm_backward = [](Context& c, Tensor dsum, bool accumulate, Tensor dbranch,
                                       Tensor dweight, Tensor dout, Tensor sum, Tensor rstd, Tensor weight) {
            of(c).real_.residual_rmsnorm_backward(c, dsum, accumulate, dbranch, dweight, dout, sum, rstd,
                                                  weight);
            of(c).made(Slot::norm_backward, dsum);
            of(c).made(Slot::norm_weight_gradient, dweight);
        };
        attention_backward = [](Context& c, Tensor dqkv, Tensor dout, Tensor out, Tensor lse, Tensor qkv,
                                AttentionShape shape) {
            of(c).real_.attention_backward(c, dqkv, dout, out, lse, qkv, shape);
            of(c).made(Slot::attention_backward, dqkv);
        };
        swiglu_backward = [](Context& c, Tensor dgate_up, Tensor dout, Tensor gate_up) {
            of(c).real_.swiglu_backward(c, dgate_up, dout, gate_up);
            of(c).made(Slot::swiglu_backward, dgate_up);
        };
        embedding_backward = [](Context& c, Tensor dtable, Tensor dout, Tensor ids) {
            of(c).real_.embedding_backward(c, dtable, dout, ids);
            of(c).made(Slot::embedding_backward, dtable);
        };
        ctx.ops = this;
    }
    ~Poisoner() { ctx_.ops = &real_; }
    Poisoner(const Poisoner&) = delete;
    Poisoner& operator=(const Poisoner&) = delete;

    /// From now on: call `call` (from 0) of the slot.
    void arm(Slot slot, int64_t call, float value) { slot_ = slot, call_ = call, value_ = value, calls_ = 0; }
    int64_t calls() const { return calls_; }

  private:
    static Poisoner& of(Context& ctx) {
        return const_cast<Poisoner&>(static_cast<const Poisoner&>(*ctx.ops));
    }

    /// An op that makes a value also reports it in its amax.
    void made(Slot slot, const Tensor& t, Amax* amax = nullptr) {
        const Amax largest{magnitude_bits(value_)};
        if (slot != slot_ || calls_++ != call_) return;
        const Bf16 narrow = to_bf16(value_);
        const void* bits = t.dtype == Dtype::f32 ? static_cast<const void*>(&value_) : &narrow;
        real_.upload(ctx_, t.data, bits, size_of(t.dtype));
        if (amax) real_.upload(ctx_, amax, &largest, sizeof(largest));
        real_.synchronize(ctx_);
    }

    const Ops& real_;
    Context& ctx_;
    Slot slot_ = Slot::none;
    int64_t call_ = 0, calls_ = 0;
    float value_ = 0;
};

/// One block, one micro-batch of one sequence, on the test's backend and in its recipe.
class Planted : public testing::TestWithParam<std::tuple<std::string, std::string>> {
  protected:
    void SetUp() override {
        const auto& [backend, recipe] = GetParam();
        std::string why;
        if (!open_backend(backend, &why)) GTEST_SKIP() << why;
        run_ = std::make_unique<TinyTraining>(
            tiny_.config({"model.layers=1", "train.micro_batch=1", "train.eval_micro_batch=1",
                          "train.accumulate=1", "train.backend=" + backend, "precision.recipe=" + recipe}));
        EXPECT_EQ(train_step(run_->training, 0).skip, kNotSkipped);
    }

    TrainingMemory& memory() { return run_->session.memory(); }
    Context& ctx() { return run_->session.ctx(); }
    float* weight(const std::string& name, int64_t index) {
        return memory().model.params.as<float>() + memory().model.table.find(name).offset + index;
    }
    /// Writes a weight and returns what stood there.
    float exchange(float* at, float value) {
        float before = 0;
        ctx().ops->download(ctx(), &before, at, sizeof(before));
        ctx().ops->upload(ctx(), at, &value, sizeof(value));
        ctx().ops->synchronize(ctx());
        return before;
    }
    /// The bits of weights and moments.
    std::string bits() {
        std::string all;
        for (const Tensor& t : {memory().model.params, memory().moment1, memory().moment2}) {
            std::string part(t.bytes(), '\0');
            ctx().ops->download(ctx(), part.data(), t.data, t.bytes());
            all += part;
        }
        return all;
    }
    /// Step 1, prepared anew by `arm` for its run and for the report of it.
    template <class Arm>
    void expect_caught(const std::string& named, Arm arm) {
        const std::string before = bits();
        arm();
        const StepState state = train_step(run_->training, 1);
        EXPECT_EQ(state.skip, uint32_t(kNonFinite));
        arm();
        expect_error(Exit::non_finite, {"step 2 of 8", "not updated", named},
                     [&] { report_non_finite(run_->training, 1, state); });
        EXPECT_TRUE(bits() == before) << "weights or moments changed";
    }
    int32_t first_token() {
        std::vector<int32_t> ids(32), targets(32);
        run_->data.fill(1, 1, ids.data(), targets.data());
        return ids[0];
    }

    TinyRun tiny_;
    std::unique_ptr<TinyTraining> run_;
};

TEST_P(Planted, InAWeightOfEachKind) {
    const int64_t used = first_token() * 128 + 5;
    const std::string block = "model.layers.0.";
    for (const auto& [name, index] : {std::pair<std::string, int64_t>{"model.embed_tokens.weight", used},
                                      {block + "input_layernorm.weight", 7},
                                      {block + "self_attn.qkv_proj.weight", 777},
                                      {block + "self_attn.o_proj.weight", 5000},
                                      {block + "post_attention_layernorm.weight", 0},
                                      {block + "mlp.gate_up_proj.weight", 12345},
                                      {block + "mlp.down_proj.weight", 128},
                                      {"model.norm.weight", 127},
                                      {"lm_head.weight", 250 * 128}})
        for (const float bad : kBad) {
            SCOPED_TRACE(concat(name, " = ", bad));
            const float good = exchange(weight(name, index), bad);
            expect_caught(concat("The weight ", name, " holds 1 values"), [] {});
            exchange(weight(name, index), good);
        }
    EXPECT_EQ(train_step(run_->training, 1).skip, kNotSkipped) << "all is well again";
}

// No value of such a row reaches the loss or a gradient: the step is right, and the same bits but for the
// row.
TEST_P(Planted, InAnEmbeddingRowThatNoTokenUsesItStaysThere) {
    float* const at = weight("model.embed_tokens.weight", 255 * 128);
    exchange(at, kNaN);
    EXPECT_EQ(train_step(run_->training, 1).skip, kNotSkipped);
    exchange(at, 1.0f);
    const std::string with = bits();
    run_->session.initialise();
    train_step(run_->training, 0);
    exchange(at, 0.5f);
    train_step(run_->training, 1);
    exchange(at, 1.0f);
    EXPECT_TRUE(bits() == with);
}

// Each call of each op in turn, gradients' ops and products among them. A logit of -inf that is not the
// target's is a probability of zero: that call makes another value.
TEST_P(Planted, InWhatAnOpMakes) {
    constexpr int64_t kLogits = 4;  // the product after the block's four
    const auto poisoner = std::make_unique<Poisoner>(ctx());
    for (int slot = 0; slot < int(Slot::none); ++slot) {
        poisoner->arm(Slot(slot), INT64_MAX, 0);
        train_step(run_->training, 0);
        for (int64_t call = 0, calls = poisoner->calls(); call < calls; ++call) {
            const bool logits = Slot(slot) == Slot::matmul && call == kLogits;
            const float bad = logits ? kNaN : kBad[(slot + call) % 3];
            SCOPED_TRACE(concat("call ", call, " of ", kSlotNames[slot], " makes ", bad));
            expect_caught(kNamed[slot], [&] { poisoner->arm(Slot(slot), call, bad); });
        }
    }
}

std::vector<std::string> recipe_names() {
    std::vector<std::string> names;
    for (const Recipe& recipe : builtin_recipes()) names.push_back(recipe.name);
    return names;
}

INSTANTIATE_TEST_SUITE_P(All, Planted,
                         testing::Combine(testing::Values("cpu", "cuda"), testing::ValuesIn(recipe_names())),
                         [](const auto& info) {
                             return std::get<0>(info.param) + "_" + std::get<1>(info.param);
                         });

}  // namespace
}  // namespace q2::test
