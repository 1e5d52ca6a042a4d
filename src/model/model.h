// A Llama-like model in memory (Hugging Face LlamaForCausalLM: RMSNorm, rotate-half RoPE, GQA, SwiGLU), and
// its passes.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "model/activations.h"
#include "model/params.h"

namespace q2 {

/// A parameter with its gradient, each (rows, cols) f32.
struct Weight {
    Tensor value, grad;
};

struct Block {
    Weight input_norm, post_norm;  ///< (1, C)
    Linear qkv, o, gate_up, down;

    /// In the order of kLinearNames; a layer's `id` is 4 * block + its place here.
    std::array<Linear*, 4> linears() { return {&qkv, &o, &gate_up, &down}; }
    std::array<const Linear*, 4> linears() const { return {&qkv, &o, &gate_up, &down}; }
};

struct Model {
    ModelConfig config;
    RecipePlan plan;
    ParameterTable table;
    Tensor params, grads;    ///< (1, table.size) f32; no gradients where nothing is trained
    Weight embedding, head;  ///< (V, C); one and the same if tied
    Tensor head_kept;        ///< (V, C) act: the head's operand; its master if act is f32
    Weight final_norm;       ///< (1, C)
    std::vector<Block> blocks;
    Tensor rope_table;  ///< (T, D) f32: cosines, sines
};

/// The model's views over an arena. Run it on a counting arena first.
Model carve_model(const ModelConfig&, const RecipePlan&, double init_std, int64_t sequence, Dtype act_dense,
                  bool trained, Arena&);

/// Writes the RoPE table; once, after carving.
void upload_rope_table(Context&, const Model&);

/// Every linear layer takes the recipe of `step`.
void select_recipes(Model&, int64_t step);
/// Makes the weights' operands from the masters: before the first micro-batch after an update, and with
/// `redrawn_only` before each later one.
void prepare_weights(Context&, Model&, const StepState*, bool redrawn_only);

/// Sees each named result of a pass as it is made; for finding the first layer that went wrong.
using Probe = std::function<void(const std::string& what, const Tensor&)>;

/// One micro-batch on its way: the model, its memory, and the step's state on the device.
struct Pass {
    Context& ctx;
    Model& model;
    Activations& act;
    StepState* state;     ///< on the device
    Tensor ids, targets;  ///< (N, 1) i32
    Probe probe = {};

    const Ops& ops() const { return *ctx.ops; }
    void see(const std::string& what, const Tensor& x) const {
        if (probe) probe(what, x);
    }
    void see(int64_t block, const char* what, const Tensor& x) const {
        if (probe) probe("layers." + std::to_string(block) + "." + what, x);
    }
};

/// Embedding and blocks, to act.hidden.
void forward(const Pass&);
/// The head a chunk of rows at a time; *loss += scale * sum of token losses. With want_gradient also the
/// gradient of that into act.dnormed and the head's; grads accumulate.
void head(const Pass&, float* loss, float scale, bool want_gradient);
/// From act.dnormed to every parameter's gradient, after forward() and head().
void backward(const Pass&);
/// logits (count, V) act of rows first..first+count-1 of act.hidden.
void head_logits(const Pass&, Tensor logits, int64_t first, int64_t count);

}  // namespace q2
