// The quantiser calls of one training step of the 30M model, in every recipe: each call of the GPU is
// repeated by the CPU on the same operands, and the results have the same bits.
#include "base/files.h"
#include "linear/recipes.h"
#include "tests/support/both_backends.h"
#include "tests/support/temp_folder.h"
#include "train/session.h"
#include "train/step.h"

namespace q2::test {
namespace {

/// A tensor of the GPU, copied to the CPU; views of nothing stay so.
class Mirror {
  public:
    Mirror(const Ops& gpu, Context& ctx, Context& cpu, const Tensor& original) {
        if (!original) return;
        copy_ = std::make_unique<DeviceTensor>(cpu, original.dtype, original.rows, original.cols);
        gpu.download(ctx, copy_->view().data, original.data, original.bytes());
    }
    Tensor view() const { return copy_ ? copy_->view() : Tensor{}; }

  private:
    std::unique_ptr<DeviceTensor> copy_;
};

/// The GPU's table, whose quantisers are each followed by the CPU's.
class Replayer : public Ops {
  public:
    Replayer(Context& ctx, Context& cpu) : Ops(*ctx.ops), real_(*ctx.ops), ctx_(ctx), cpu_(cpu) {
        quantize = replayed_quantize;
        quantize_gradient = replayed_quantize_gradient;
        ctx.ops = this;
    }
    ~Replayer() { ctx_.ops = &real_; }
    int64_t calls() const { return calls_; }
    std::string finding;  ///< the first difference

  private:
    static Replayer& of(Context& ctx) {
        return const_cast<Replayer&>(static_cast<const Replayer&>(*ctx.ops));
    }

    static void replayed_quantize(Context& ctx, const Quantized& out, Operand source, const Amax* amax,
                                  const QuantSpec& spec, const Rotation& rotation, const Address& address) {
        Replayer& self = of(ctx);
        self.real_.quantize(ctx, out, source, amax, spec, rotation, address);
        self.replay(out, source, amax, spec, rotation, address);
    }
    static void replayed_quantize_gradient(Context& ctx, const Quantized* for_dgrad,
                                           const Quantized* for_wgrad, Tensor e, const GemmSpec& dgrad,
                                           const GemmSpec& wgrad, const Address& dgrad_address,
                                           const Address& wgrad_address) {
        Replayer& self = of(ctx);
        self.real_.quantize_gradient(ctx, for_dgrad, for_wgrad, e, dgrad, wgrad, dgrad_address,
                                     wgrad_address);
        if (for_dgrad) self.replay(*for_dgrad, {.dense = e}, nullptr, dgrad.a, dgrad.rotation, dgrad_address);
        if (for_wgrad)
            self.replay(*for_wgrad, {.dense = e, .transposed = true}, nullptr, wgrad.a, wgrad.rotation,
                        wgrad_address);
    }

    Mirror mirror(const Tensor& t) { return Mirror(real_, ctx_, cpu_, t); }

    void replay(const Quantized& out, const Operand& source, const Amax* amax, const QuantSpec& spec,
                const Rotation& rotation, Address address) {
        StepState state;
        real_.download(ctx_, &state, address.state, sizeof(state));
        address.state = &state;
        Amax known{};
        if (amax) real_.download(ctx_, &known, amax, sizeof(known));
        const Quantized empty;
        const Quantized& q = source.q ? *source.q : empty;
        const Mirror dense = mirror(source.dense), codes = mirror(q.codes), scales = mirror(q.scales);
        const Mirror tensor_scale = mirror(q.tensor_scale);
        const Quantized cpu_q{q.rows, q.inner, codes.view(), scales.view(), tensor_scale.view(), {}};
        const Operand cpu_source{dense.view(), source.q ? &cpu_q : nullptr, source.transposed};
        expect_same(out, cpu_source, amax ? &known : nullptr, spec, rotation, address);
        ++calls_;
    }

    void expect_same(const Quantized& out, const Operand& source, const Amax* amax, const QuantSpec& spec,
                     const Rotation& rotation, const Address& address) {
        const Mirror codes = mirror(out.codes), scales = mirror(out.scales), s_t = mirror(out.tensor_scale);
        const Mirror dense = mirror(out.dense);
        const auto poisoned = [&](const Tensor& like, Dtype dtype) {
            return std::make_unique<DeviceTensor>(cpu_, dtype, like.rows, like.cols);
        };
        const auto cpu_codes = poisoned(out.codes, Dtype::u8), cpu_scales = poisoned(out.scales, Dtype::u8);
        const auto cpu_s_t = poisoned(out.tensor_scale, Dtype::f32),
                   cpu_dense = poisoned(out.dense, Dtype::f32);
        const Quantized cpu_out{out.rows,
                                out.inner,
                                out.codes ? cpu_codes->view() : Tensor{},
                                out.scales ? cpu_scales->view() : Tensor{},
                                cpu_s_t->view(),
                                out.dense ? cpu_dense->view() : Tensor{}};
        const LentScratch scratch(cpu_, cpu_.ops->quantize_scratch(out.rows, out.inner));
        cpu_.ops->quantize(cpu_, cpu_out, source, amax, spec, rotation, address);
        const std::string where = concat("call ", calls_, " (layer ", address.layer, ", gemm ", address.gemm,
                                         ", operand ", address.operand, "): ");
        compare(where + "codes", codes.view(), cpu_out.codes);
        compare(where + "scales", scales.view(), cpu_out.scales);
        compare(where + "tensor scale", s_t.view(), cpu_out.tensor_scale);
        if (!out.dense) return;
        std::vector<float> widened;
        for (int64_t i = 0; i < dense.view().size(); ++i)
            widened.push_back(to_float(dense.view().as<Bf16>()[i]));
        if (std::memcmp(widened.data(), cpu_out.dense.data, widened.size() * 4) != 0)
            note(where + "dense operands");
    }

    void compare(const std::string& what, const Tensor& got, const Tensor& want) {
        if (want && std::memcmp(got.data, want.data, want.bytes()) != 0) note(what);
    }
    void note(const std::string& what) {
        if (finding.empty()) finding = what + " differ";
    }

    const Ops& real_;
    Context& ctx_;
    Context& cpu_;
    int64_t calls_ = 0;
};

class CudaReplay : public testing::TestWithParam<std::string> {};

TEST_P(CudaReplay, OneStepOfThe30MModelQuantisesToTheCpusBits) {
    OPEN_BACKEND_OR_SKIP(gpu, "cuda");
    OPEN_BACKEND_OR_SKIP(cpu, "cpu");
    const TempFolder folder;
    {
        AtomicFile file(folder / "tokens.bin");
        std::vector<uint16_t> tokens;
        for (int i = 0; i < 4096; ++i) tokens.push_back(uint16_t(i * 7919 % 32000));
        write_token_header(file, 2, int64_t(tokens.size()));
        file.write(tokens.data(), tokens.size() * 2);
        file.commit();
    }
    const Config config =
        load_config(QUARTET2_SOURCE_DIR "/configs/llama-30m.json",
                    {"data.train=[\"" + (folder / "tokens.bin") + "\"]", "train.eval_every=0",
                     "train.micro_batch=2", "train.accumulate=1", "train.eval_micro_batch=1",
                     "train.backend=cuda", "precision.recipe=" + GetParam()});
    const DataLoader data({config.data.train, "auto", config.data.sequence, config.model.vocab},
                          SampleOrder::shuffled);
    Session session(config);
    session.initialise();
    Replayer replayer(session.ctx(), cpu->context());
    Training training{session.ctx(), config, session.memory(), data};
    const StepState state = train_step(training, 0);
    EXPECT_EQ(state.skip, 0u);
    EXPECT_EQ(replayer.finding, "");
    if (GetParam() != "bf16") {
        EXPECT_GE(replayer.calls(), 6 * 4 * 6);
    }
}

std::vector<std::string> recipe_names() {
    std::vector<std::string> names;
    for (const Recipe& recipe : builtin_recipes()) names.push_back(recipe.name);
    return names;
}
INSTANTIATE_TEST_SUITE_P(Recipes, CudaReplay, testing::ValuesIn(recipe_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace q2::test
