#include "model/model.h"

#include <cmath>

namespace q2 {
namespace {

struct Carver {
    Model& model;
    Dtype dense;
    Arena& arena;

    Tensor part(Tensor flat, const Parameter& p) const {
        if (!flat) return {};
        return {static_cast<float*>(flat.data) + p.offset, Dtype::f32, p.rows, p.cols};
    }
    Weight weight(const std::string& name) const {
        const Parameter& p = model.table.find(name);
        return {part(model.params, p), part(model.grads, p)};
    }
    Linear linear(int64_t block, int index, const std::string& name) const {
        const Weight w = weight(name + ".weight");
        Linear layer{.name = name, .id = uint32_t(block * 4 + index), .weight = w.value, .grad = w.grad};
        layer.requantise_once_a_step = model.plan.requantize_once_a_step;
        const bool kept = keeps_bf16(model.plan.keep, block, model.config.layers, kLinearNames[index]);
        carve_weight_copies(layer, model.plan.all(kept), model.config.activation_dtype(), dense, arena);
        return layer;
    }
};

template <class F>
void for_each_linear(Model& model, F f) {
    for (size_t block = 0; block < model.blocks.size(); ++block) {
        const auto layers = model.blocks[block].linears();
        for (size_t i = 0; i < layers.size(); ++i) f(*layers[i], int64_t(block), kLinearNames[i]);
    }
}

}  // namespace

Model carve_model(const ModelConfig& config, const RecipePlan& plan, double init_std, int64_t sequence,
                  Dtype dense, bool trained, Arena& arena) {
    Model m{.config = config, .plan = plan, .table = parameter_table(config, init_std)};
    m.params = arena.take(Dtype::f32, 1, m.table.size, Use::weights);
    if (trained) m.grads = arena.take(Dtype::f32, 1, m.table.size, Use::gradients);
    const Carver c{m, dense, arena};
    m.embedding = c.weight("model.embed_tokens.weight");
    for (int64_t block = 0; block < config.layers; ++block) {
        const std::string prefix = "model.layers." + std::to_string(block) + ".";
        m.blocks.push_back({c.weight(prefix + "input_layernorm.weight"),
                            c.weight(prefix + "post_attention_layernorm.weight"),
                            c.linear(block, 0, prefix + "self_attn.qkv_proj"),
                            c.linear(block, 1, prefix + "self_attn.o_proj"),
                            c.linear(block, 2, prefix + "mlp.gate_up_proj"),
                            c.linear(block, 3, prefix + "mlp.down_proj")});
    }
    m.final_norm = c.weight("model.norm.weight");
    m.head = config.tied ? m.embedding : c.weight("lm_head.weight");
    m.head_kept = m.head.value;
    if (config.activation_dtype() != Dtype::f32)
        m.head_kept = arena.take(config.activation_dtype(), config.vocab, config.width, Use::weight_operands);
    m.rope_table = arena.take(Dtype::f32, sequence, config.head_width(), Use::weight_operands);
    return m;
}

void upload_rope_table(Context& ctx, const Model& m) {
    const int64_t half = m.rope_table.cols / 2;
    std::vector<float> table(size_t(m.rope_table.size()));
    for (int64_t t = 0; t < m.rope_table.rows; ++t)
        for (int64_t i = 0; i < half; ++i) {
            const double angle = double(t) * std::pow(m.config.rope_theta, -double(i) / double(half));
            table[size_t(t * 2 * half + i)] = float(std::cos(angle));
            table[size_t(t * 2 * half + half + i)] = float(std::sin(angle));
        }
    ctx.ops->upload(ctx, m.rope_table.data, table.data(), m.rope_table.bytes());
    ctx.ops->synchronize(ctx);
}

void select_recipes(Model& model, int64_t step) {
    for_each_linear(model, [&](Linear& linear, int64_t block, std::string_view name) {
        const bool kept = keeps_bf16(model.plan.keep, block, model.config.layers, name);
        linear.recipe = kept ? model.plan.all(true).front() : &model.plan.at(step);
    });
}

void prepare_weights(Context& ctx, Model& model, const StepState* state, bool redrawn_only) {
    for_each_linear(model, [&](Linear& linear, int64_t, std::string_view) {
        if (!redrawn_only || redraws_weight(linear)) prepare_weight(ctx, linear, state);
    });
    if (!redrawn_only && model.head_kept.data != model.head.value.data)
        ctx.ops->cast(ctx, model.head_kept, model.head.value);
}

}  // namespace q2
