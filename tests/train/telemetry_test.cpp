// Telemetry: its figures are those of the operands that were made, and it changes no bit of a run.
#include "train/telemetry.h"

#include <algorithm>
#include <memory>

#include "commands/telemetry.h"
#include "linear/recipes.h"
#include "ops/quantiser_observer.h"
#include "tests/support/tiny_training.h"
#include "train/trainer.h"

namespace q2::test {
namespace {

/// An observer that is held to the scales that the CPU's quantiser wrote.
class Checked : public QuantiserObserver {
  public:
    explicit Checked(Context& ctx) : QuantiserObserver(ctx), observed_(quantize) {
        quantize = [](Context& c, const Quantized& out, Operand source, const Amax* amax,
                      const QuantSpec& spec, const Rotation& rotation, const Address& address) {
            Checked& self = const_cast<Checked&>(static_cast<const Checked&>(*c.ops));
            std::vector<uint8_t> own(size_t(out.rows * out.inner / kBlock));
            const int64_t height = spec.grid == Grid::tile ? kBlock : 1;
            Quantized written = out;
            if (!out.scales) written.scales = {own.data(), Dtype::u8, out.rows / height, out.inner / kBlock};
            self.observed_(c, written, source, amax, spec, rotation, address);
            if (spec.rounding == Rounding::keep) return;
            const Tensor sampled = written.scales.slice(0, std::min(out.rows, kRows) / height);
            const uint8_t *first = sampled.as<uint8_t>(), *last = first + sampled.size();
            const QuantiserFigures& f = self.figures().at({address.layer, address.gemm, address.operand});
            EXPECT_EQ(f.blocks, sampled.size());
            EXPECT_EQ(f.saturated, std::count(first, last, uint8_t(kE4m3Max)));
            EXPECT_EQ(f.zero, std::count(first, last, uint8_t(0)));
            ++self.checked;
        };
    }
    int64_t checked = 0;

  private:
    decltype(Ops::quantize) observed_;
};

TEST(Telemetry, CountsTheScalesThatWereWritten) {
    const TinyRun tiny;
    for (const Recipe& recipe : builtin_recipes()) {
        SCOPED_TRACE(recipe.name);
        TinyTraining run(tiny.config({"precision.recipe=" + recipe.name}));
        train_step(run.training, 0);
        const auto observer = std::make_unique<Checked>(run.session.ctx());
        repeat_micro_batch(run.training, 0, 0);
        EXPECT_EQ(observer->checked > 0, recipe.name != "bf16");
    }
}

TEST(Telemetry, FiguresAreWithinWhatTheRecipeAllows) {
    const TinyRun tiny;
    TinyTraining run(tiny.config());
    train_step(run.training, 0);
    const nlohmann::json records = telemetry(run.training, 0);
    ASSERT_EQ(records.size(), 2u * 4 * (6 + 2));
    for (const nlohmann::json& r : records) {
        SCOPED_TRACE(r.dump());
        const bool forward = r["operand"].get<std::string>().starts_with("fprop");
        EXPECT_EQ(r.contains("second"), forward);
        if (r.contains("cosine")) {
            EXPECT_GT(r["cosine"], 0.9);
            EXPECT_LT(r["cosine"], 0.999);
        } else if (forward) {
            EXPECT_GT(r["second"], 0.1);
            EXPECT_LT(r["second"], 0.7);
        } else {
            EXPECT_NEAR(r["eden"].get<double>(), 1.0, 0.02);
            EXPECT_GT(r["eden_deviation"], 0.0);
        }
    }
    EXPECT_NE(telemetry_table({{"step", 0}, {"telemetry", records}}).find("self_attn.qkv_proj"),
              std::string::npos);
}

TEST(Telemetry, PlainProductsGiveTheExactGradient) {
    const TinyRun tiny;
    for (const char* type : {"float32", "bfloat16"}) {
        TinyTraining run(tiny.config({"precision.recipe=bf16", concat("model.activations=", type)}));
        train_step(run.training, 0);
        const nlohmann::json records = telemetry(run.training, 0);
        ASSERT_EQ(records.size(), 2u * 4 * 2);
        for (const nlohmann::json& r : records) EXPECT_GT(r.at("cosine"), 0.9999) << type << ": " << r;
        EXPECT_NE(telemetry_table({{"step", 0}, {"telemetry", records}}).find(" 1.00000\n"),
                  std::string::npos);
    }
}

TEST(Telemetry, ChangesNoBitOfARun) {
    const TinyRun tiny;
    start_run(tiny.config(), tiny / "plain");
    start_run(tiny.config({"log.telemetry_every=2"}), tiny / "seen");
    Outcome seen = outcome_of(tiny / "seen");
    EXPECT_EQ(std::erase_if(seen.records, [](const auto& r) { return r.contains("telemetry"); }), 4u);
    expect_same(outcome_of(tiny / "plain"), seen, "telemetry every 2 steps");
}

}  // namespace
}  // namespace q2::test
