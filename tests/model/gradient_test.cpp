// The whole model's gradient against central differences of its loss, in float32.
#include <algorithm>
#include <cmath>
#include <random>

#include "tests/support/tiny_training.h"

namespace q2::test {
namespace {

/// Initial weights ten times as wide as usual, so that every tensor's gradient stands out of the rounding.
Config float32_model(const TinyRun& tiny, const Overrides& overrides) {
    return tiny.config(Overrides{"precision.recipe=bf16", "model.activations=float32", "model.vocab=256",
                                 "train.init_std=0.2", "train.micro_batch=2"} +
                       overrides);
}

class Gradient : public testing::TestWithParam<Overrides> {
  protected:
    TinyRun tiny_;
    TinyTraining run_{float32_model(tiny_, GetParam())};
    std::mt19937 random_{20240607};

    /// The mean loss, of the tokens' float32 losses in float64.
    double loss() {
        const Pass pass = run_.first_micro_batch();
        forward(pass);
        head(pass, &pass.state->loss, 1.0f, false);
        double sum = 0;
        for (const float x : run_.copy(pass.act.losses)) sum += x;
        return sum / double(pass.act.tokens());
    }
    std::vector<float> gradient() {
        const Pass pass = run_.first_micro_batch();
        forward(pass);
        head(pass, &pass.state->loss, 1.0f / float(pass.act.tokens()), true);
        backward(pass);
        return run_.copy(pass.model.grads);
    }
    /// The loss's slope along `direction` (unit length) in the parameter.
    double slope(const Parameter& p, const std::vector<double>& direction, double h) {
        float* w = run_.weights(p.name);
        const std::vector<float> before(w, w + p.size());
        double side[2];
        for (const int s : {0, 1}) {
            for (size_t i = 0; i < before.size(); ++i) w[i] = float(before[i] + (s ? h : -h) * direction[i]);
            side[s] = loss();
        }
        std::copy(before.begin(), before.end(), w);
        return (side[1] - side[0]) / (2 * h);
    }
};

double dot(const float* g, const std::vector<double>& d) {
    double sum = 0;
    for (size_t i = 0; i < d.size(); ++i) sum += g[i] * d[i];
    return sum;
}

TEST_P(Gradient, AgreesWithCentralDifferencesInEveryTensor) {
    const std::vector<float> all = gradient();
    for (const Parameter& p : run_.session.memory().model.table.list) {
        const float* g = all.data() + p.offset;
        std::vector<double> along(g, g + p.size()), signs(along.size());
        const double norm = std::sqrt(dot(g, along));
        ASSERT_GT(norm, 1e-3) << p.name;
        for (double& x : along) x /= norm;
        for (double& x : signs) x = (random_() & 1 ? 1 : -1) / std::sqrt(double(p.size()));
        // Losses near 6 have 5e-7 of rounding, 64 tokens average it: 1e-7 of a change near 1e-2.
        const double h = 5e-3 / norm;
        EXPECT_NEAR(slope(p, along, h), norm, 5e-3 * norm) << p.name << ", along its gradient";
        EXPECT_NEAR(slope(p, signs, h), dot(g, signs), 5e-3 * norm) << p.name << ", a random direction";
        for (int pick = 0; pick < 3; ++pick) {
            std::vector<double> one(along.size());
            const size_t at = random_() % one.size();
            one[at] = 1;
            EXPECT_NEAR(slope(p, one, h), g[at], 1e-3 * norm) << p.name << ", element " << at;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Models, Gradient,
                         testing::Values(Overrides{},
                                         Overrides{"model.tied=true", "model.kv_heads=1", "model.heads=4"}),
                         [](const auto& info) { return std::string(info.index ? "tied_gqa" : "plain"); });

}  // namespace
}  // namespace q2::test
