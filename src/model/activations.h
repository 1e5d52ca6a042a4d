// What a micro-batch leaves in memory between the forward and the backward, and the buffers that the passes
// share. N = B*T tokens, C width, M mlp; "act" and "res" are the types of activations and of the residual
// stream.
#pragma once

#include <vector>

#include "linear/linear.h"
#include "linear/recipe_plan.h"
#include "model/model_config.h"

namespace q2 {

struct BlockActivations {
    Tensor attention_sum, attention_rstd;  ///< (N, C) res, (N, 1) f32: the stream that input_layernorm reads
    LinearInput qkv_input;                 ///< (N, C)
    Tensor qkv;                            ///< (N, qkv width) act, rotated
    Tensor lse;                            ///< (heads B, T) f32
    LinearInput o_input;                   ///< (N, heads D); its dense form is the attention's output
    Tensor mlp_sum, mlp_rstd;              ///< (N, C) res, (N, 1) f32
    LinearInput gate_up_input;             ///< (N, C)
    Tensor gate_up;                        ///< (N, 2M) act; its gradient after the backward
    LinearInput down_input;                ///< (N, M)
};

struct Activations {
    AttentionShape shape;
    bool for_backward = false;
    std::vector<BlockActivations> blocks;
    Tensor final_sum, final_rstd;  ///< (N, C) res, (N, 1) f32
    Tensor hidden;                 ///< (N, C) act: the head's input
    Tensor branch;                 ///< (N, C) act: a branch's output on its way into the stream
    Tensor logits;                 ///< (chunk, V) act, never all of them
    Tensor losses;                 ///< (N, 1) f32
    LinearWorkspace workspace;
    // Gradients, carved only for the backward.
    Tensor dstream;     ///< (N, C) res
    Tensor dbranch;     ///< (N, C) act; dstream itself where the types agree
    Tensor dnormed;     ///< (N, C) act
    Tensor dattention;  ///< (N, heads D) act
    Tensor dqkv;        ///< (N, qkv width) act
    Tensor dswiglu;     ///< (N, M) act

    int64_t tokens() const { return shape.tokens(); }
};

/// Rows of logits held at once: about 256 MiB, a multiple of 16; a function of the sizes alone.
int64_t head_chunk(const ModelConfig&, int64_t tokens);

AttentionShape attention_shape(const ModelConfig&, int64_t batch, int64_t sequence);

Activations carve_activations(const ModelConfig&, const RecipePlan&, Dtype dense, int64_t batch,
                              int64_t sequence, bool for_backward, Arena&);

/// Scratch that any op of a micro-batch needs.
size_t model_scratch(const Ops&, const ModelConfig&, const RecipePlan&, int64_t batch, int64_t sequence,
                     bool for_backward);

}  // namespace q2
