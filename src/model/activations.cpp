#include "model/activations.h"

#include <algorithm>

namespace q2 {
namespace {

/// Sizes and types that the carving below repeats.
struct Carver {
    const ModelConfig& m;
    const RecipePlan& plan;
    int64_t tokens;
    Dtype act, res;
    bool for_backward;
    Arena& arena;

    Tensor take(Dtype dtype, int64_t cols, Use use = Use::activations) const {
        return arena.take(dtype, tokens, cols, use);
    }
    /// The recipes whose backward will read the input: none without a backward.
    std::vector<const Recipe*> readers(int64_t block, std::string_view name) const {
        if (!for_backward) return {};
        return plan.all(keeps_bf16(plan.keep, block, m.layers, name));
    }
    /// An input that stands in `shared` unless a backward needs it.
    LinearInput input(int64_t block, std::string_view name, Tensor shared) const {
        const auto all = readers(block, name);
        return carve_input(all, wgrad_reads_input(all) ? take(act, shared.cols, Use::linear_inputs) : shared,
                           arena);
    }
};

BlockActivations carve_block(const Carver& c, int64_t block, const AttentionShape& shape, Tensor normed,
                             Tensor swiglu) {
    BlockActivations b;
    b.attention_sum = c.take(c.res, c.m.width, Use::residual);
    b.attention_rstd = c.take(Dtype::f32, 1, Use::norms);
    b.qkv_input = c.input(block, "qkv_proj", normed);
    b.qkv = c.take(c.act, c.m.qkv_width(), Use::attention);
    b.lse = c.arena.take(Dtype::f32, shape.batch * shape.heads, shape.sequence, Use::attention);
    b.o_input = carve_input(c.readers(block, "o_proj"),
                            c.take(c.act, c.m.attention_width(), Use::linear_inputs), c.arena);
    b.mlp_sum = c.take(c.res, c.m.width, Use::residual);
    b.mlp_rstd = c.take(Dtype::f32, 1, Use::norms);
    b.gate_up_input = c.input(block, "gate_up_proj", normed);
    b.gate_up = c.take(c.act, 2 * c.m.mlp, Use::mlp);
    b.down_input = c.input(block, "down_proj", swiglu);
    return b;
}

std::vector<LinearShape> linear_shapes(const ModelConfig& m) {
    return {{m.width, m.qkv_width()}, {m.attention_width(), m.width}, {m.width, 2 * m.mlp}, {m.mlp, m.width}};
}

}  // namespace

int64_t head_chunk(const ModelConfig& m, int64_t tokens) {
    const int64_t row_bytes = m.vocab * int64_t(size_of(m.activation_dtype()));
    return std::min(tokens, std::max<int64_t>(16, (int64_t(256) << 20) / row_bytes / 16 * 16));
}

AttentionShape attention_shape(const ModelConfig& m, int64_t batch, int64_t sequence) {
    return {batch, sequence, m.heads, m.kv_head_count(), m.head_width()};
}

Activations carve_activations(const ModelConfig& m, const RecipePlan& plan, Dtype dense, int64_t batch,
                              int64_t sequence, bool for_backward, Arena& arena) {
    Activations a{.shape = attention_shape(m, batch, sequence), .for_backward = for_backward};
    const Carver c{m, plan, a.tokens(), m.activation_dtype(), m.residual_dtype(), for_backward, arena};
    const Tensor normed = c.take(c.act, m.width), swiglu = c.take(c.act, m.mlp);
    // Without a backward one block's memory serves them all.
    for (int64_t block = 0; block < m.layers; ++block)
        a.blocks.push_back(block == 0 || for_backward ? carve_block(c, block, a.shape, normed, swiglu)
                                                      : a.blocks[0]);
    a.final_sum = c.take(c.res, m.width, Use::residual);
    a.final_rstd = c.take(Dtype::f32, 1, Use::norms);
    a.hidden = c.take(c.act, m.width);
    a.branch = c.take(c.act, m.width);
    a.logits = arena.take(c.act, head_chunk(m, a.tokens()), m.vocab, Use::logits);
    a.losses = c.take(Dtype::f32, 1, Use::logits);
    a.workspace = carve_workspace(plan.all(false), linear_shapes(m), a.tokens(), dense, arena);
    if (!for_backward) return a;
    a.dstream = c.take(c.res, m.width);
    a.dbranch = c.act == c.res ? a.dstream : c.take(c.act, m.width);
    a.dnormed = c.take(c.act, m.width);
    a.dattention = c.take(c.act, m.attention_width());
    a.dqkv = c.take(c.act, m.qkv_width());
    a.dswiglu = c.take(c.act, m.mlp);
    return a;
}

size_t model_scratch(const Ops& ops, const ModelConfig& m, const RecipePlan& plan, int64_t batch,
                     int64_t sequence, bool for_backward) {
    const int64_t tokens = batch * sequence, chunk = head_chunk(m, tokens);
    size_t bytes = std::max(ops.attention_scratch(attention_shape(m, batch, sequence)),
                            ops.matmul_scratch(chunk, m.vocab, m.width));
    for (const LinearShape& shape : linear_shapes(m))
        for (const bool kept : {false, true})
            bytes = std::max(bytes, linear_scratch(ops, plan.all(kept), shape, tokens, for_backward));
    if (!for_backward) return bytes;
    return std::max({bytes, ops.matmul_scratch(chunk, m.width, m.vocab),
                     ops.matmul_scratch(m.vocab, m.width, chunk),
                     ops.embedding_backward_scratch(tokens, m.vocab),
                     ops.residual_rmsnorm_backward_scratch(tokens, m.width)});
}

}  // namespace q2
