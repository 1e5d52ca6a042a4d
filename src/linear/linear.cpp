#include "linear/linear.h"

#include <algorithm>

namespace q2 {
namespace {

bool draws(const QuantSpec& spec) {
    return spec.rounding == Rounding::stochastic || spec.rounding == Rounding::ms_eden;
}

Address address_of(const Linear& linear, const StepState* state, Gemm gemm, uint32_t operand) {
    const bool once = linear.requantise_once_a_step;
    const bool weight = operand == 1 && gemm != kWgrad;
    return {.state = state,
            .layer = linear.id,
            .gemm = gemm,
            .operand = operand,
            .rounding_once_a_step = once && weight,
            .signs_once_a_step = once && gemm != kWgrad};
}

/// The workspace as an operand of the given size: dense values and their tensor scale, no codes.
Quantized workspace_operand(Tensor buffer, Tensor scale, int64_t rows, int64_t inner) {
    return {.rows = rows,
            .inner = inner,
            .tensor_scale = scale,
            .dense = {buffer.data, buffer.dtype, rows, inner}};
}

Quantized carve_codes(const QuantSpec& spec, int64_t rows, int64_t inner, Use use, Arena& arena) {
    const int64_t scale_rows = spec.grid == Grid::tile ? rows / kBlock : rows;
    return {.rows = rows,
            .inner = inner,
            .codes = arena.take(Dtype::u8, rows, inner / 2, use),
            .scales = arena.take(Dtype::u8, scale_rows, inner / kBlock, use),
            .tensor_scale = arena.take(Dtype::f32, 1, 1, use)};
}

/// Codes are carved for the finest grid among the recipes; a 16x16 grid uses a sixteenth of the scales.
void fit_grid(Quantized& q, const QuantSpec& spec) {
    if (q.scales) q.scales.rows = spec.grid == Grid::tile ? q.rows / kBlock : q.rows;
}

template <class Predicate>
bool any(const std::vector<const Recipe*>& recipes, Predicate p) {
    return std::any_of(recipes.begin(), recipes.end(), [&](const Recipe* r) { return p(*r); });
}

}  // namespace

bool wgrad_reads_codes(const Recipe& r) {
    return r.wgrad.b.from == Source::quantised && r.fprop.a.rounding != Rounding::keep;
}
bool dgrad_reads_codes(const Recipe& r) {
    return r.dgrad.b.from == Source::quantised && r.fprop.b.rounding != Rounding::keep;
}

bool plain_fprop(const Recipe& r) { return r.fprop.keeps_both(); }
/// Only a plain forward leaves W in the activations' type.
bool plain_dgrad(const Recipe& r) { return r.dgrad.keeps_both() && plain_fprop(r); }
bool plain_wgrad(const Recipe& r) { return r.wgrad.keeps_both() && !wgrad_reads_codes(r); }

int64_t padded_tokens(const GemmSpec& wgrad, int64_t tokens) {
    const int64_t multiple =
        std::max(inner_multiple(wgrad.a, wgrad.rotation), inner_multiple(wgrad.b, wgrad.rotation));
    return (tokens + multiple - 1) / multiple * multiple;
}

void carve_weight_copies(Linear& linear, const std::vector<const Recipe*>& recipes, Dtype act, Dtype dense,
                         Arena& arena) {
    const int64_t out = linear.out(), in = linear.in();
    const bool needs_plain = any(recipes, plain_fprop),
               needs_quantised = any(recipes, [](const Recipe&r) { return !plain_fprop(r); });
    linear.kept = linear.weight;
    if (needs_plain && act != Dtype::f32) linear.kept = arena.take(act, out, in, Use::weight_operands);
    if (!needs_quantised) return;
    linear.quantised = any(recipes, dgrad_reads_codes)
                           ? carve_codes({}, out, in, Use::weight_operands, arena)
                           : Quantized{.rows = out,
                                       .inner = in,
                                       .tensor_scale = arena.take(Dtype::f32, 1, 1, Use::weight_operands)};
    linear.quantised.dense = arena.take(dense, out, in, Use::weight_operands);
}

bool wgrad_reads_input(const std::vector<const Recipe*>& recipes) {
    return any(recipes, [](const Recipe& r) { return !wgrad_reads_codes(r); });
}

LinearInput carve_input(const std::vector<const Recipe*>& recipes, Tensor dense, Arena& arena) {
    LinearInput input{.dense = dense, .quantised = {}};
    if (any(recipes, wgrad_reads_codes))
        input.quantised = carve_codes({}, dense.rows, dense.cols, Use::linear_inputs, arena);
    input.amax = static_cast<Amax*>(arena.take(sizeof(Amax), Use::linear_inputs));
    return input;
}

LinearWorkspace carve_workspace(const std::vector<const Recipe*>& recipes,
                                const std::vector<LinearShape>& shapes, int64_t tokens, Dtype dense,
                                Arena& arena) {
    int64_t a = 0, b = 0, columns = 0;
    for (const Recipe* r : recipes)
        for (const auto& [in, out] : shapes) {
            const int64_t padded = padded_tokens(r->wgrad, tokens);
            if (!plain_fprop(*r)) a = std::max(a, tokens * in);
            if (!plain_dgrad(*r)) a = std::max(a, tokens * out), b = std::max(b, in * out);
            if (!plain_wgrad(*r)) columns = std::max(columns, padded * out), b = std::max(b, padded * in);
        }
    const auto scale = [&] { return arena.take(Dtype::f32, 1, 1, Use::operands); };
    return {arena.take(dense, 1, a, Use::operands),
            arena.take(dense, 1, b, Use::operands),
            arena.take(dense, 1, columns, Use::operands),
            scale(),
            scale(),
            scale()};
}

size_t linear_scratch(const Ops& ops, const std::vector<const Recipe*>& recipes, LinearShape shape,
                      int64_t tokens, bool for_backward) {
    size_t bytes = 0;
    const auto& [in, out] = shape;
    const auto needs = [&](std::initializer_list<size_t> all) { bytes = std::max(bytes, std::max(all)); };
    for (const Recipe* r : recipes) {
        const int64_t padded = padded_tokens(r->wgrad, tokens);
        needs({ops.matmul_scratch(tokens, out, in)});
        if (!plain_fprop(*r)) needs({ops.quantize_scratch(tokens, in), ops.quantize_scratch(out, in)});
        if (!for_backward) continue;
        needs({ops.matmul_scratch(tokens, in, out), ops.matmul_scratch(out, in, padded)});
        if (!plain_dgrad(*r)) needs({ops.quantize_scratch(tokens, out), ops.quantize_scratch(in, out)});
        if (!plain_wgrad(*r)) needs({ops.quantize_scratch(out, padded), ops.quantize_scratch(in, padded)});
    }
    return bytes;
}

bool redraws_weight(const Linear& linear) {
    return draws(linear.recipe->fprop.b) && !linear.requantise_once_a_step;
}

void prepare_weight(Context& ctx, Linear& linear, const StepState* state) {
    const GemmSpec& fprop = linear.recipe->fprop;
    if (plain_fprop(*linear.recipe)) {
        if (linear.kept.data != linear.weight.data) ctx.ops->cast(ctx, linear.kept, linear.weight);
        return;
    }
    fit_grid(linear.quantised, fprop.b);
    ctx.ops->quantize(ctx, linear.quantised, {.dense = linear.weight}, nullptr, fprop.b, fprop.rotation,
                      address_of(linear, state, kFprop, 1));
}

void linear_forward(Context& ctx, Linear& linear, Tensor y, LinearInput& input, const LinearWorkspace& ws,
                    const StepState* state) {
    const Recipe& recipe = *linear.recipe;
    if (plain_fprop(recipe)) {
        ctx.ops->matmul(ctx, y, {.dense = input.dense}, {.dense = linear.kept}, false);
        return;
    }
    Quantized x = workspace_operand(ws.a, ws.a_scale, y.rows, linear.in());
    if (input.quantised.codes && wgrad_reads_codes(recipe)) {
        fit_grid(input.quantised, recipe.fprop.a);
        x.codes = input.quantised.codes;
        x.scales = input.quantised.scales;
        x.tensor_scale = input.quantised.tensor_scale;
    }
    ctx.ops->quantize(ctx, x, {.dense = input.dense}, input.amax, recipe.fprop.a, recipe.fprop.rotation,
                      address_of(linear, state, kFprop, 0));
    ctx.ops->matmul(ctx, y, {.q = &x}, {.q = &linear.quantised}, false);
}

namespace {

void dgrad(Context& ctx, Linear& linear, Tensor dx, Tensor e, const Quantized& e_rows,
           const LinearWorkspace& ws, const StepState* state) {
    const Recipe& recipe = *linear.recipe;
    if (plain_dgrad(recipe)) {
        ctx.ops->matmul(ctx, dx, {.dense = e}, {.dense = linear.kept, .transposed = true}, false);
        return;
    }
    const Quantized w = workspace_operand(ws.b, ws.b_scale, linear.in(), linear.out());
    const Operand source = dgrad_reads_codes(recipe) ? Operand{.q = &linear.quantised, .transposed = true}
                                                     : Operand{.dense = linear.weight, .transposed = true};
    ctx.ops->quantize(ctx, w, source, nullptr, recipe.dgrad.b, recipe.dgrad.rotation,
                      address_of(linear, state, kDgrad, 1));
    ctx.ops->matmul(ctx, dx, {.q = &e_rows}, {.q = &w}, false);
}

void wgrad(Context& ctx, Linear& linear, Tensor e, const Quantized& e_columns, const LinearInput& input,
           const LinearWorkspace& ws, const StepState* state) {
    const Recipe& recipe = *linear.recipe;
    if (plain_wgrad(recipe)) {
        ctx.ops->matmul(ctx, linear.grad, {.dense = e, .transposed = true},
                        {.dense = input.dense, .transposed = true}, true);
        return;
    }
    const Quantized x = workspace_operand(ws.b, ws.b_scale, linear.in(), e_columns.inner);
    const Operand source = wgrad_reads_codes(recipe) ? Operand{.q = &input.quantised, .transposed = true}
                                                     : Operand{.dense = input.dense, .transposed = true};
    ctx.ops->quantize(ctx, x, source, nullptr, recipe.wgrad.b, recipe.wgrad.rotation,
                      address_of(linear, state, kWgrad, 1));
    ctx.ops->matmul(ctx, linear.grad, {.q = &e_columns}, {.q = &x}, true);
}

}  // namespace

void linear_backward(Context& ctx, Linear& linear, Tensor dx, Tensor e, const LinearInput& input,
                     const LinearWorkspace& ws, const StepState* state) {
    const Recipe& recipe = *linear.recipe;
    const Quantized rows = workspace_operand(ws.a, ws.a_scale, e.rows, linear.out());
    const Quantized columns = workspace_operand(ws.e_columns, ws.e_columns_scale, linear.out(),
                                                padded_tokens(recipe.wgrad, e.rows));
    if (!plain_dgrad(recipe) || !plain_wgrad(recipe))
        ctx.ops->quantize_gradient(ctx, plain_dgrad(recipe) ? nullptr : &rows,
                                   plain_wgrad(recipe) ? nullptr : &columns, e, recipe.dgrad, recipe.wgrad,
                                   address_of(linear, state, kDgrad, 0),
                                   address_of(linear, state, kWgrad, 0));
    dgrad(ctx, linear, dx, e, rows, ws, state);
    wgrad(ctx, linear, e, columns, input, ws, state);
}

}  // namespace q2
