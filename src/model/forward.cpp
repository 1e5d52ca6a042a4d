// The forward pass: embedding, then for each block norm, QKV, RoPE, attention, O, norm, gate and up, SwiGLU,
// down.
#include "model/model.h"

#include <algorithm>

namespace q2 {
namespace {

/// The stream that a norm reads: its input plus the branch that the layer before left, written to `sum`.
struct StreamStep {
    Tensor sum, residual, branch;
};

void norm(const Pass& p, const StreamStep& stream, Tensor rstd, const Weight& weight, Tensor out,
          Amax* amax) {
    p.ops().residual_rmsnorm_forward(p.ctx, out, rstd, stream.sum, stream.residual, stream.branch,
                                     weight.value, float(p.model.config.norm_eps), amax);
}

void attention(const Pass& p, int64_t index, Block& block, BlockActivations& a) {
    linear_forward(p.ctx, block.qkv, a.qkv, a.qkv_input, p.act.workspace, p.state);
    p.see(index, "self_attn.qkv_proj", a.qkv);
    p.ops().rope(p.ctx, a.qkv, p.model.rope_table, p.act.shape, Direction::forward);
    p.ops().attention_forward(p.ctx, a.o_input.dense, a.lse, a.qkv, p.act.shape, a.o_input.amax);
    p.see(index, "self_attn", a.o_input.dense);
    linear_forward(p.ctx, block.o, p.act.branch, a.o_input, p.act.workspace, p.state);
    p.see(index, "self_attn.o_proj", p.act.branch);
}

void mlp(const Pass& p, int64_t index, Block& block, BlockActivations& a) {
    linear_forward(p.ctx, block.gate_up, a.gate_up, a.gate_up_input, p.act.workspace, p.state);
    p.see(index, "mlp.gate_up_proj", a.gate_up);
    p.ops().swiglu_forward(p.ctx, a.down_input.dense, a.gate_up, a.down_input.amax);
    p.see(index, "mlp.swiglu", a.down_input.dense);
    linear_forward(p.ctx, block.down, p.act.branch, a.down_input, p.act.workspace, p.state);
    p.see(index, "mlp.down_proj", p.act.branch);
}

}  // namespace

void forward(const Pass& p) {
    Model& m = p.model;
    Tensor stream = p.act.blocks[0].attention_sum, branch;
    p.ops().embedding_forward(p.ctx, stream, m.embedding.value, p.ids);
    p.see("model.embed_tokens", stream);
    for (size_t i = 0; i < m.blocks.size(); ++i) {
        Block& block = m.blocks[i];
        BlockActivations& a = p.act.blocks[i];
        norm(p, {a.attention_sum, stream, branch}, a.attention_rstd, block.input_norm, a.qkv_input.dense,
             a.qkv_input.amax);
        p.see(int64_t(i), "input_layernorm", a.qkv_input.dense);
        attention(p, int64_t(i), block, a);
        norm(p, {a.mlp_sum, a.attention_sum, p.act.branch}, a.mlp_rstd, block.post_norm,
             a.gate_up_input.dense, a.gate_up_input.amax);
        p.see(int64_t(i), "post_attention_layernorm", a.gate_up_input.dense);
        mlp(p, int64_t(i), block, a);
        stream = a.mlp_sum;
        branch = p.act.branch;
    }
    norm(p, {p.act.final_sum, stream, branch}, p.act.final_rstd, m.final_norm, p.act.hidden, nullptr);
    p.see("model.norm", p.act.hidden);
}

void head_logits(const Pass& p, Tensor logits, int64_t first, int64_t count) {
    p.ops().matmul(p.ctx, logits, {.dense = p.act.hidden.slice(first, count)}, {.dense = p.model.head_kept},
                   false);
}

void head(const Pass& p, float* loss, float scale, bool want_gradient) {
    const int64_t tokens = p.act.tokens(), chunk = p.act.logits.rows;
    for (int64_t first = 0; first < tokens; first += chunk) {
        const int64_t count = std::min(chunk, tokens - first);
        const Tensor logits = p.act.logits.slice(0, count);
        head_logits(p, logits, first, count);
        p.see("lm_head", logits);
        p.ops().cross_entropy(p.ctx, p.act.losses.slice(first, count), logits, p.targets.slice(first, count),
                              scale, want_gradient);
        if (!want_gradient) continue;
        p.see("the loss's gradient", logits);
        p.ops().matmul(p.ctx, p.act.dnormed.slice(first, count), {.dense = logits},
                       {.dense = p.model.head_kept, .transposed = true}, false);
        p.ops().matmul(p.ctx, p.model.head.grad, {.dense = logits, .transposed = true},
                       {.dense = p.act.hidden.slice(first, count), .transposed = true}, true);
    }
    p.ops().add_loss(p.ctx, loss, p.act.losses, scale);
}

}  // namespace q2
