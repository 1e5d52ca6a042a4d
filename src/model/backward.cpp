// The backward pass, in the forward's mirror image. dstream carries the residual stream's gradient; every
// norm adds its own to it, and its copy dbranch is the gradient of the branch that had been added there.
#include "model/model.h"

namespace q2 {
namespace {

void norm(const Pass& p, bool accumulate, const Weight& weight, Tensor sum, Tensor rstd) {
    const Tensor dbranch = p.act.dbranch.data == p.act.dstream.data ? Tensor{} : p.act.dbranch;
    p.ops().residual_rmsnorm_backward(p.ctx, p.act.dstream, accumulate, dbranch, weight.grad, p.act.dnormed,
                                      sum, rstd, weight.value);
}

void mlp(const Pass& p, int64_t index, Block& block, BlockActivations& a) {
    linear_backward(p.ctx, block.down, p.act.dswiglu, p.act.dbranch, a.down_input, p.act.workspace, p.state);
    p.see(index, "mlp.down_proj's input gradient", p.act.dswiglu);
    p.ops().swiglu_backward(p.ctx, a.gate_up, p.act.dswiglu, a.gate_up);
    p.see(index, "mlp.swiglu's input gradient", a.gate_up);
    linear_backward(p.ctx, block.gate_up, p.act.dnormed, a.gate_up, a.gate_up_input, p.act.workspace,
                    p.state);
    p.see(index, "mlp.gate_up_proj's input gradient", p.act.dnormed);
}

void attention(const Pass& p, int64_t index, Block& block, BlockActivations& a) {
    linear_backward(p.ctx, block.o, p.act.dattention, p.act.dbranch, a.o_input, p.act.workspace, p.state);
    p.see(index, "self_attn.o_proj's input gradient", p.act.dattention);
    p.ops().attention_backward(p.ctx, p.act.dqkv, p.act.dattention, a.o_input.dense, a.lse, a.qkv,
                               p.act.shape);
    p.ops().rope(p.ctx, p.act.dqkv, p.model.rope_table, p.act.shape, Direction::backward);
    p.see(index, "self_attn's input gradient", p.act.dqkv);
    linear_backward(p.ctx, block.qkv, p.act.dnormed, p.act.dqkv, a.qkv_input, p.act.workspace, p.state);
    p.see(index, "self_attn.qkv_proj's input gradient", p.act.dnormed);
}

}  // namespace

void backward(const Pass& p) {
    Model& m = p.model;
    norm(p, false, m.final_norm, p.act.final_sum, p.act.final_rstd);
    for (size_t i = m.blocks.size(); i-- > 0;) {
        Block& block = m.blocks[i];
        BlockActivations& a = p.act.blocks[i];
        mlp(p, int64_t(i), block, a);
        norm(p, true, block.post_norm, a.mlp_sum, a.mlp_rstd);
        attention(p, int64_t(i), block, a);
        norm(p, true, block.input_norm, a.attention_sum, a.attention_rstd);
    }
    p.ops().embedding_backward(p.ctx, m.embedding.grad, p.act.dstream, p.ids);
}

}  // namespace q2
