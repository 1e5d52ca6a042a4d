// The linear layer's passes against their definition (docs/NUMERICS.md section 7), which this file computes
// by itself: reference quantisers, draws by the table of section 2, products in double.
#include "linear/linear.h"

#include "linear/recipe_plan.h"
#include "tests/linear/test_layer.h"
#include "tests/support/reference_quantizer.h"
#include "tests/support/temp_folder.h"

namespace q2::test {
namespace {

struct Definition {
    Floats x, w;  // the forward's operands as it multiplied them
    std::vector<double> y, dx, dw;
};

/// The layer's data, all of it exact in the types it is stored in.
struct Data {
    LayerSize size;
    Floats x, w, e;

    Data(LayerSize size, Dtype act, uint32_t seed) : size(size) {
        x = deviates(size.tokens * size.in, seed);
        w = deviates(size.out * size.in, seed + 1);
        e = deviates(size.tokens * size.out, seed + 2);
        for (Floats* f : {&x, &e})
            for (float& v : *f) v = act == Dtype::bf16 ? to_float(to_bf16(v)) : v;
    }
};

/// What the layer must compute in micro-batch `state`. once: `requantize_weights: step`.
class DefinedLayer {
  public:
    DefinedLayer(const Recipe& recipe, const StepState& state, bool once, Dtype act)
        : recipe_(recipe), state_(state), once_(once), act_(act) {}

    Definition compute(const Data& d) const {
        const auto& [tokens, in, out] = d.size;
        const GemmSpec &f = recipe_.fprop, &g = recipe_.dgrad, &h = recipe_.wgrad;
        const int64_t padded = (tokens + padding() - 1) / padding() * padding();
        Definition result;
        result.x = operand(d.x, tokens, in, f.a, f.rotation, kFprop, 0);
        result.w = operand(weight(d.w), out, in, f.b, f.rotation, kFprop, 1);
        result.y = exact_product(result.x, result.w, in);
        const Floats& w = g.b.from == Source::quantised ? result.w : weight(d.w);
        const Floats& x = h.b.from == Source::quantised ? result.x : d.x;
        result.dx =
            exact_product(operand(d.e, tokens, out, g.a, g.rotation, kDgrad, 0),
                          operand(transposed(w, out, in, out), in, out, g.b, g.rotation, kDgrad, 1), out);
        result.dw = exact_product(
            operand(transposed(d.e, tokens, out, padded), out, padded, h.a, h.rotation, kWgrad, 0),
            operand(transposed(x, tokens, in, padded), in, padded, h.b, h.rotation, kWgrad, 1), padded);
        return result;
    }

  private:
    /// A forward that quantises nothing multiplies by the weight in the activations' type.
    Floats weight(Floats w) const {
        if (act_ == Dtype::bf16 && recipe_.fprop.a.rounding == Rounding::keep &&
            recipe_.fprop.b.rounding == Rounding::keep)
            for (float& v : w) v = to_float(to_bf16(v));
        return w;
    }
    int64_t padding() const {
        int64_t multiple = std::max(16, recipe_.wgrad.rotation.size);
        for (const QuantSpec& q : {recipe_.wgrad.a, recipe_.wgrad.b})
            if (q.rounding == Rounding::ms_eden) multiple = std::max<int64_t>(multiple, q.correction);
        return multiple;
    }
    Floats operand(const Floats& x, int64_t rows, int64_t inner, const QuantSpec& spec,
                   const Rotation& rotation, uint32_t gemm, uint32_t number) const {
        ReferenceDraws draws;
        draws.rounding = {state_.seed, state_.step, state_.micro_batch, 6, gemm, number};
        draws.signs = draws.rounding;
        if (once_ && gemm != kWgrad) draws.signs.micro_batch = 0;
        if (once_ && gemm != kWgrad && number == 1) draws.rounding.micro_batch = 0;
        return reference_quantize(x, rows, inner, spec, rotation, draws).value;
    }

    const Recipe& recipe_;
    StepState state_;
    bool once_;
    Dtype act_;
};

double relative_error(const Floats& got, const std::vector<double>& want) {
    double error = 0, power = 0;
    for (size_t i = 0; i < want.size(); ++i) {
        error += (got[i] - want[i]) * (got[i] - want[i]);
        power += want[i] * want[i];
    }
    return std::sqrt(error / power);
}

const StepState kState = {.seed = 0xfedcba9876543210ull, .step = 11, .micro_batch = 2};

/// Y and dX are stored in the activations' type; dW is float32 always.
void expect_definition(const LoneLayer& layer, const Definition& want, Dtype act, const std::string& what) {
    const double stored = act == Dtype::f32 ? 1e-5 : 3e-3;
    EXPECT_LT(relative_error(layer.y(), want.y), stored) << "Y of " << what;
    EXPECT_LT(relative_error(layer.dx(), want.dx), stored) << "dX of " << what;
    EXPECT_LT(relative_error(layer.dw(), want.dw), 1e-5) << "dW of " << what;
}

void check(const Recipe& recipe, LayerSize size, Dtype act) {
    const Data d(size, act, 100);
    LoneLayer layer({&recipe}, size, act);
    layer.set_weight(d.w);
    layer.run(d.x, d.e, kState);
    expect_definition(layer, DefinedLayer(recipe, kState, false, act).compute(d), act,
                      concat(recipe_to_json(recipe).dump(), ", ", size.tokens, " tokens, ", size.in, " to ",
                             size.out, ", ", name_of(act)));
}

const LayerSize kSizes[] = {{48, 128, 384}, {64, 256, 128}, {130, 128, 128}};

TEST(Linear, BuiltinRecipesAreTheirDefinition) {
    for (const Recipe& recipe : builtin_recipes())
        for (const LayerSize& size : kSizes)
            for (const Dtype act : {Dtype::f32, Dtype::bf16}) check(recipe, size, act);
}

/// One field, or one operand, changed.
const char* const kAblations[] = {
    R"({"base": "quartet2", "fprop": {"a": {"rule": "absmax"}}})",
    R"({"base": "quartet2", "fprop": {"a": {"round": "keep"}}})",
    R"({"base": "quartet2", "fprop": {"b": {"round": "keep"}}})",
    R"({"base": "quartet2", "fprop": {"b": {"grid": "16x16"}}})",
    R"({"base": "quartet2", "fprop": {"b": {"round": "stochastic"}}})",
    R"({"base": "quartet2", "dgrad": {"a": {"round": "stochastic"}}})",
    R"({"base": "quartet2", "dgrad": {"a": {"round": "keep"}, "b": {"round": "keep"}}})",
    R"({"base": "quartet2", "dgrad": {"b": {"from": "original"}}})",
    R"({"base": "quartet2", "dgrad": {"rotation": 0}})",
    R"({"base": "quartet2", "dgrad": {"rotation": 32, "rounds": 2}})",
    R"({"base": "quartet2", "wgrad": {"signs": "fixed"}})",
    R"({"base": "quartet2", "wgrad": {"b": {"from": "original"}}})",
    R"({"base": "quartet2", "wgrad": {"b": {"correction": 16, "range": "post_hoc"}}})",
    R"({"base": "quartet2", "wgrad": {"a": {"round": "keep"}, "b": {"round": "keep"}, "rotation": 0}})",
    R"({"base": "nvidia", "dgrad": {"b": {"round": "nearest", "grid": "16x16"}}})",
    R"({"base": "nvidia", "wgrad": {"rotation": 0}})",
    R"({"base": "nvidia", "fprop": {"a": {"round": "keep"}, "b": {"round": "keep"}}})",
    R"({"base": "tetrajet_v2", "wgrad": {"a": {"rule": "mse"}}})",
    R"({"base": "bf16", "dgrad": {"a": {"round": "nearest"}}})",
    R"({"base": "bf16", "wgrad": {"rotation": 16, "b": {"round": "ms_eden"}}})",
    R"({"fprop": {"rotation": 64, "a": {"round": "nearest"}, "b": {"round": "nearest", "rule": "mse"}}})",
};

TEST(Linear, AblationsAreTheirDefinition) {
    for (const char* text : kAblations) {
        const Recipe recipe = recipe_from_json(nlohmann::json::parse(text));
        for (const LayerSize& size : kSizes) check(recipe, size, Dtype::f32);
        check(recipe, kSizes[0], Dtype::bf16);
    }
}

/// dX and dW are the derivatives of the product that the forward computed, not of X W^T: with nothing
/// quantised in the backward, <dX, X_q> = <dW, W_q> = <E, Y>.
TEST(Linear, GradientsPassStraightThrough) {
    const Recipe recipe = recipe_from_json(nlohmann::json::parse(R"({"base": "quartet2",
        "dgrad": {"rotation": 0, "a": {"round": "keep"}, "b": {"round": "keep"}},
        "wgrad": {"rotation": 0, "a": {"round": "keep"}, "b": {"round": "keep"}}})"));
    const Data d(kSizes[0], Dtype::f32, 5);
    LoneLayer layer({&recipe}, d.size);
    layer.set_weight(d.w);
    layer.run(d.x, d.e, kState);
    const Definition forward = DefinedLayer(recipe, kState, false, Dtype::f32).compute(d);
    const auto dot = [](const Floats& a, const Floats& b) {
        double sum = 0;
        for (size_t i = 0; i < a.size(); ++i) sum += double(a[i]) * b[i];
        return sum;
    };
    const double want = dot(d.e, layer.y());
    EXPECT_NEAR(dot(layer.dx(), forward.x), want, 1e-5 * std::abs(want) + 1e-2);
    EXPECT_NEAR(dot(layer.dw(), forward.w), want, 1e-5 * std::abs(want) + 1e-2);
    EXPECT_GT(std::abs(dot(layer.dx(), d.x) - want), 0.1);  // which tells the two apart
}

/// The gradient adds up over micro-batches, each with draws of its own, and over what was there.
TEST(Linear, GradientAccumulates) {
    for (const char* name : {"bf16", "quartet2", "nvidia"}) {
        const Recipe& recipe = find_recipe(name);
        LoneLayer layer({&recipe}, kSizes[2]);
        const Data first(kSizes[2], Dtype::f32, 1), other(kSizes[2], Dtype::f32, 50);
        layer.set_weight(first.w);
        std::vector<double> want(first.w.size(), 1000.0);
        std::fill_n(layer.linear.grad.as<float>(), first.w.size(), 1000.0f);
        for (uint32_t g = 0; g < 4; ++g) {
            Data d = g % 2 ? other : first;
            d.w = first.w;
            const StepState state = {.seed = 3, .step = 1, .micro_batch = g};
            layer.run(d.x, d.e, state);
            const Definition one = DefinedLayer(recipe, state, false, Dtype::f32).compute(d);
            for (size_t i = 0; i < want.size(); ++i) want[i] += one.dw[i];
        }
        EXPECT_LT(relative_error(layer.dw(), want), 1e-6) << name;
    }
}

/// W's operand made once, in micro-batch 0, serves the others; its draws and the dgrad's signs stay.
TEST(Linear, RequantisingOnceAStepUsesTheFirstMicroBatchsDraws) {
    const Recipe stochastic_weight = recipe_from_json(nlohmann::json::parse(
        R"({"base": "quartet2", "fprop": {"a": {"round": "stochastic"}, "b": {"round": "stochastic"}}})"));
    for (const Recipe& recipe : {find_recipe("quartet2"), find_recipe("quartet2_plus"),
                                 find_recipe("tetrajet_v2"), stochastic_weight}) {
        const Data d(kSizes[0], Dtype::f32, 8);
        LoneLayer layer({&recipe}, d.size);
        EXPECT_EQ(redraws_weight(layer.linear), recipe.fprop.b.rounding == Rounding::stochastic);
        layer.linear.requantise_once_a_step = true;
        EXPECT_FALSE(redraws_weight(layer.linear));
        layer.set_weight(d.w);
        StepState state = kState;
        state.micro_batch = 0;
        layer.prepare_weight(state);
        for (const uint32_t micro_batch : {0u, 1u, 3u}) {
            state.micro_batch = micro_batch;
            std::fill_n(layer.linear.grad.as<float>(), d.w.size(), 0.0f);
            layer.forward(d.x, state);
            layer.backward(d.e, state);
            expect_definition(layer, DefinedLayer(recipe, state, true, Dtype::f32).compute(d), Dtype::f32,
                              concat(recipe.name, ", micro-batch ", micro_batch));
        }
    }
}

/// One layer's memory serves all recipes of a run: whatever ran before, each is its own definition.
TEST(Linear, RecipesShareOneLayersMemory) {
    std::vector<const Recipe*> recipes;
    for (const Recipe& recipe : builtin_recipes()) recipes.push_back(&recipe);
    for (const Dtype act : {Dtype::f32, Dtype::bf16}) {
        const Data d(kSizes[0], act, 21);
        LoneLayer layer(recipes, d.size, act);
        for (int round = 0; round < 2; ++round)
            for (const Recipe* recipe : recipes) {
                layer.linear.recipe = recipe;
                layer.set_weight(d.w);
                layer.run(d.x, d.e, kState);
                expect_definition(layer, DefinedLayer(*recipe, kState, false, act).compute(d), act,
                                  recipe->name + " after others");
            }
    }
}

/// A layer that keep_bf16 names runs plain products and takes no memory for codes or operands.
TEST(Linear, KeptLayersAreBf16) {
    const RecipePlan plan{.switches = {{0, find_recipe("quartet2")}}, .keep = {.first = 1}};
    ASSERT_TRUE(keeps_bf16(plan.keep, 0, 4, "o_proj"));
    const std::vector<const Recipe*> kept = plan.all(true);
    ASSERT_EQ(kept.size(), 1u);
    for (const Dtype act : {Dtype::f32, Dtype::bf16}) {
        const Data d({20, 24, 40}, act, 4);  // sizes that no block divides
        LoneLayer layer(kept, d.size, act);
        EXPECT_FALSE(layer.linear.quantised.codes || layer.linear.quantised.dense ||
                     layer.input.quantised.codes);
        layer.set_weight(d.w);
        layer.run(d.x, d.e, kState);
        expect_definition(layer, DefinedLayer(*kept[0], kState, false, act).compute(d), act, "a kept layer");
    }
}

TEST(Linear, TokensArePaddedToBlocksRotationsAndCorrectionGroups) {
    EXPECT_EQ(padded_tokens(find_recipe("quartet2").wgrad, 129), 256);
    EXPECT_EQ(padded_tokens(find_recipe("nvidia").wgrad, 129), 144);
    EXPECT_EQ(padded_tokens(find_recipe("bf16").wgrad, 129), 144);
}

}  // namespace
}  // namespace q2::test
