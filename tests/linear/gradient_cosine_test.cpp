// The cosine of a layer's gradients on Gaussian data: exact products give 1, quantised ones what their error
// leaves, and a gradient of the wrong sign the negative.
#include "linear/gradient_cosine.h"

#include <gtest/gtest.h>

#include <random>

#include "linear/lone_layer.h"
#include "linear/recipes.h"

namespace q2 {
namespace {

Floats normals(int64_t count, uint32_t seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    Floats values;
    for (int64_t i = 0; i < count; ++i) values.push_back(normal(generator));
    return values;
}

struct Cosines {
    double dx, dw;
};

/// With both gradients multiplied by `factor` after the backward.
Cosines cosines_of(const Recipe& recipe, Dtype act, float factor = 1.0f) {
    const LayerSize size{512, 256, 384};
    LoneLayer layer({&recipe}, size, act);
    layer.set_weight(normals(size.in * size.out, 1));
    const StepState state{.seed = 7, .step = 3};
    layer.prepare_weight(state);
    // As in training, the sample is taken before the input is overwritten.
    const Floats x = normals(size.tokens * size.in, 2);
    Floats copy = x;
    const InputSample sample = sample_input(layer.ctx(), {copy.data(), Dtype::f32, size.tokens, size.in});
    layer.forward(x, state);
    layer.backward(normals(size.tokens * size.out, 3), state);
    Tensor dx = layer.dx_tensor();
    for (int64_t i = 0; i < dx.size(); ++i) {
        if (act == Dtype::f32)
            dx.as<float>()[i] *= factor;
        else
            dx.as<Bf16>()[i] = to_bf16(factor * to_float(dx.as<Bf16>()[i]));
    }
    for (int64_t i = 0; i < layer.linear.grad.size(); ++i) layer.linear.grad.as<float>()[i] *= factor;
    return {dgrad_cosine(layer.ctx(), layer.linear, dx, layer.e_tensor()),
            wgrad_cosine(layer.ctx(), layer.linear, sample, layer.e_tensor())};
}

TEST(GradientCosine, IsOneForPlainProducts) {
    for (const Dtype act : {Dtype::f32, Dtype::bf16}) {
        const Cosines c = cosines_of(find_recipe("bf16"), act);
        EXPECT_GT(c.dx, 0.9999);
        EXPECT_GT(c.dw, 0.9999);
    }
    EXPECT_GT(cosines_of(find_recipe("bf16"), Dtype::f32).dw, 1 - 1e-9);
}

TEST(GradientCosine, ShowsTheErrorOfARecipe) {
    for (const Dtype act : {Dtype::f32, Dtype::bf16}) {
        const Cosines c = cosines_of(find_recipe("quartet2"), act);
        EXPECT_GT(c.dx, 0.98);
        EXPECT_LT(c.dx, 0.995);
        EXPECT_GT(c.dw, 0.98);
        EXPECT_LT(c.dw, 0.995);
    }
}

TEST(GradientCosine, IsNegativeForTheWrongSign) {
    const Cosines c = cosines_of(find_recipe("quartet2"), Dtype::f32, -1.0f);
    EXPECT_LT(c.dx, -0.98);
    EXPECT_LT(c.dw, -0.98);
    EXPECT_TRUE(std::isnan(cosines_of(find_recipe("bf16"), Dtype::f32, 0.0f).dx));
}

}  // namespace
}  // namespace q2
