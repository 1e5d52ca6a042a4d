// A linear layer as three quantised GEMMs (Quartet II, arXiv 2601.22813, section 4; docs/NUMERICS.md section
// 7): fprop Y = X W^T, dgrad dX = E W, wgrad dW = E^T X, where E is the gradient of Y. Straight-through: dX
// and dW are those of the product of the quantised operands.
#pragma once

#include <string>
#include <vector>

#include "ops/ops.h"
#include "tensor/arena.h"

namespace q2 {

struct Linear {
    std::string name;     ///< as "layers.3.mlp.down_proj", for keep_bf16 and messages
    uint32_t id = 0;      ///< its number in the addresses of draws, in the order of the forward pass
    Tensor weight, grad;  ///< (out, in) f32: master and accumulated gradient
    Tensor kept;          ///< (out, in) act: the operand of plain products; the master itself if act is f32
    Quantized quantised;  ///< (out, in): the forward's W; codes only if a backward reads them
    const Recipe* recipe = nullptr;
    bool requantise_once_a_step = false;  ///< W's draws and the dgrad's signs are those of micro-batch 0

    int64_t in() const { return weight.cols; }
    int64_t out() const { return weight.rows; }
};

/// What a layer's wgrad starts from: its input as given, or the forward's codes of it.
struct LinearInput {
    Tensor dense;         ///< (N, in) act; overwritten after the forward if only codes are kept
    Quantized quantised;  ///< (N, in): codes, scales, tensor scale; none if only the dense input is kept
    Amax* amax = nullptr;
};

/// Operands of the product at hand, shared by all layers.
struct LinearWorkspace {
    Tensor a, b, e_columns;                    ///< dense_dtype: X or E, W or X^T, and E^T
    Tensor a_scale, b_scale, e_columns_scale;  ///< (1, 1) f32
};

// ---- What a recipe needs ----

/// The forward quantises the operand, and the backward starts from the result.
bool wgrad_reads_codes(const Recipe&);
bool dgrad_reads_codes(const Recipe&);
/// The product runs on the operands as they are, in the activations' type.
bool plain_fprop(const Recipe&);
bool plain_dgrad(const Recipe&);
bool plain_wgrad(const Recipe&);
/// Tokens after zero padding, so that blocks, rotations and correction groups of wgrad's inner dimension fit.
int64_t padded_tokens(const GemmSpec& wgrad, int64_t tokens);

// ---- Memory: for all the recipes that the layer may run ----

void carve_weight_copies(Linear&, const std::vector<const Recipe*>&, Dtype act, Dtype dense, Arena&);
/// Some recipe's wgrad starts from the input itself, which must then outlive the forward.
bool wgrad_reads_input(const std::vector<const Recipe*>&);
/// dense: (N, in) act, where the input will stand.
LinearInput carve_input(const std::vector<const Recipe*>&, Tensor dense, Arena&);
struct LinearShape {
    int64_t in, out;
};
LinearWorkspace carve_workspace(const std::vector<const Recipe*>&, const std::vector<LinearShape>&,
                                int64_t tokens, Dtype dense, Arena&);
/// Scratch of the quantisers and products of one layer.
size_t linear_scratch(const Ops&, const std::vector<const Recipe*>&, LinearShape, int64_t tokens,
                      bool for_backward);

// ---- The passes ----

/// Whether W's operand must be made anew for every micro-batch, because its draws change.
bool redraws_weight(const Linear&);
/// Makes W's forward operand from the master: quantised, or in the activations' type.
void prepare_weight(Context&, Linear&, const StepState* state);
/// y (N, out) act = x W^T; x is input.dense. Fills input.quantised, if it was carved, where the backward
/// reads codes.
void linear_forward(Context&, Linear&, Tensor y, LinearInput& input, const LinearWorkspace&,
                    const StepState* state);
/// dx (N, in) act = e W; grad += e^T x. e (N, out) act.
void linear_backward(Context&, Linear&, Tensor dx, Tensor e, const LinearInput& input, const LinearWorkspace&,
                     const StepState* state);

}  // namespace q2
