// The update of a whole model: what decays, and AdamW by its definition.
#include "train/optimizer.h"

#include <cmath>
#include <set>

#include "tests/support/tiny_training.h"

namespace q2::test {
namespace {

TEST(Optimizer, WhatDecays) {
    const ParameterTable table = parameter_table({.layers = 1, .width = 128, .heads = 2}, 0.02);
    std::set<std::string> linear, matrices;
    for (const Parameter& p : table.list) {
        if (decays(p, "linear")) linear.insert(p.name);
        if (decays(p, "matrices")) matrices.insert(p.name);
    }
    const std::string block = "model.layers.0.";
    std::set<std::string> expected = {block + "self_attn.qkv_proj.weight", block + "self_attn.o_proj.weight",
                                      block + "mlp.gate_up_proj.weight", block + "mlp.down_proj.weight"};
    EXPECT_EQ(linear, expected);
    expected.insert({"model.embed_tokens.weight", "lm_head.weight"});
    EXPECT_EQ(matrices, expected);
}

/// AdamW with decoupled decay, arXiv 1711.05101, algorithm 2, in float64.
struct Reference {
    const OptimizerConfig& o;
    double lr, clip;
    int64_t t;  ///< from 1

    double operator()(double p, double& m, double& v, double g, bool decay) const {
        g *= clip;
        m = o.beta1 * m + (1 - o.beta1) * g;
        v = o.beta2 * v + (1 - o.beta2) * g * g;
        const double m_hat = m / (1 - std::pow(o.beta1, double(t)));
        const double v_hat = v / (1 - std::pow(o.beta2, double(t)));
        return p - lr * (m_hat / (std::sqrt(v_hat) + o.eps) + (decay ? o.weight_decay * p : 0));
    }
};

TEST(Optimizer, EveryParameterFollowsAdamW) {
    const TinyRun tiny;
    for (const std::string decay : {"linear", "matrices"}) {
        TinyTraining run(tiny.config({"optimizer.decay=" + decay, "optimizer.weight_decay=0.5",
                                      "optimizer.clip=0.3", "schedule.warmup=0"}));
        TrainingMemory& memory = run.session.memory();
        std::vector<float> p = run.copy(memory.model.params);
        std::vector<double> m(p.size()), v(p.size());
        for (int64_t step = 0; step < 3; ++step) {
            const StepState s = train_step(run.training, step);
            const std::vector<float> g = run.copy(memory.model.grads);
            double norm = 0;
            for (const float x : g) norm += double(x) * x;
            EXPECT_NEAR(s.grad_norm, std::sqrt(norm), 1e-5 * std::sqrt(norm));
            EXPECT_LT(s.clip_factor, 1.0f);
            const Reference adamw{run.training.config.optimizer, s.learning_rate,
                                  0.3 / (std::sqrt(norm) + 1e-6), step + 1};
            const std::vector<float> now = run.copy(memory.model.params);
            for (const Parameter& part : memory.model.table.list)
                for (int64_t i = part.offset; i < part.offset + part.size(); ++i) {
                    const size_t at = size_t(i);
                    const double want = adamw(p[at], m[at], v[at], g[at], decays(part, decay));
                    ASSERT_NEAR(now[at], want, 2e-6) << part.name << ", element " << i - part.offset;
                }
            p = now;
        }
    }
}

}  // namespace
}  // namespace q2::test
