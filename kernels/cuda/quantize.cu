// NVFP4 quantisers over whole operands, bit for bit those of kernels/cpu/quantize.cpp. Where the tensor's
// maximum is not known yet, a first pass finds it; both passes load and rotate anew, which costs less memory
// and traffic than keeping the operand in float32 between them.
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/quantize_request.h"

namespace q2::cuda {
namespace {

/// The first pass: *largest becomes the bits of the maximum that the tensor scale is made of.
__global__ void __launch_bounds__(kTileThreads)
    maximum_kernel(uint32_t* largest, const __grid_constant__ QuantizeInput in) {
    __shared__ QuantizeShared shared;
    uint32_t seen = 0;
    for_each_block(in, shared, [&](const BlockPlace& at, const float(&x)[kBlock]) {
        if (at.inside) seen = max(seen, block_maximum(x));
    });
    block_amax_into(largest, seen);
}

template <class Scheme>
__global__ void __launch_bounds__(kTileThreads)
    round_kernel(const __grid_constant__ QuantizeOutput out, const __grid_constant__ QuantizeInput in,
                 const __grid_constant__ BlockDraws draws, const uint32_t* largest) {
    __shared__ QuantizeShared shared;
    __shared__ float reciprocals[kE4m3Max + 1];
    const float s_t = Scheme::scale_of(float_of(*largest));
    if (blockIdx.x == 0 && threadIdx.x == 0) *out.tensor_scale = s_t;
    if (Scheme::kValues && threadIdx.x <= kE4m3Max)
        reciprocals[threadIdx.x] = scale_reciprocal(uint8_t(threadIdx.x), s_t);
    const RoundScale round_scale(s_t, reciprocals);
    // for_each_block synchronises before its first visit.
    for_each_block(in, shared, [&](const BlockPlace& at, float(&x)[kBlock]) {
        if constexpr (Scheme::kValues) {
            const uint8_t scale = Scheme::encode_values(x, round_scale);
            if (at.inside) out.write_values(at, x, scale);
        } else {
            int codes[kBlock];
            const uint8_t scale = Scheme::encode(at, x, s_t, draws, codes);
            if (at.inside) out.template write<Scheme::kTileScales>(at, codes, scale);
        }
    });
}

/// A kept operand; `scale` is that of codes whose factor was left out, or null for 1.
__global__ void __launch_bounds__(kTileThreads)
    keep_kernel(const __grid_constant__ QuantizeOutput out, const __grid_constant__ QuantizeInput in,
                const float* scale) {
    __shared__ QuantizeShared shared;
    if (blockIdx.x == 0 && threadIdx.x == 0) *out.tensor_scale = scale ? *scale : 1.0f;
    for_each_block(in, shared, [&](const BlockPlace& at, const float(&x)[kBlock]) {
        if (at.inside) store<kBlock>(out.dense + at.row * in.inner + at.block * kBlock, x);
    });
}

void check_request(const Quantized& out, const Operand& source, const QuantSpec& spec,
                   const Rotation& rotation) {
    const int64_t stored_rows = source.q ? source.q->rows : source.dense.rows;
    const int64_t stored_cols = source.q ? source.q->inner : source.dense.cols;
    const int64_t rows = source.transposed ? stored_cols : stored_rows;
    const int64_t inner = source.transposed ? stored_rows : stored_cols;
    require(out.rows == rows && out.inner >= inner, "quantize: (", rows, ", ", inner, ") into (", out.rows,
            ", ", out.inner, ")");
    require(source.q || source.dense.dtype == Dtype::f32 || source.dense.dtype == Dtype::bf16,
            "quantize: a source of ", name_of(source.dense.dtype));
    require(out.inner % kBlock == 0 && out.inner % inner_multiple(spec, rotation) == 0,
            "quantize: inner size ", out.inner, " is not a multiple of ", inner_multiple(spec, rotation));
    const int n = rotation.size;
    require(n == 0 ||
                ((n == 16 || n == 32 || n == 64 || n == 128) && rotation.rounds >= 1 && rotation.rounds <= 2),
            "quantize: no rotation of ", n, " in ", rotation.rounds, " rounds");
    const bool tiles = spec.rounding == Rounding::nearest && spec.grid == Grid::tile;
    require(!tiles || out.rows % kBlock == 0, "quantize: ", out.rows, " rows are no 16x16 tiles");
    require(spec.rounding != Rounding::keep || bool(out.dense), "quantize: a kept operand has no dense form");
}

// ---- From a spec to a scheme

template <template <Rule> class Scheme, class F>
void for_rule(Rule rule, F f) {
    switch (rule) {
        case Rule::six:
            return f(Scheme<Rule::six>{});
        case Rule::mse:
            return f(Scheme<Rule::mse>{});
        case Rule::mae:
            return f(Scheme<Rule::mae>{});
        case Rule::absmax:
            return f(Scheme<Rule::absmax>{});
        case Rule::search:
            return f(Scheme<Rule::search>{});
    }
}

template <class F>
void for_scheme(const QuantSpec& spec, F f) {
    switch (spec.rounding) {
        case Rounding::keep:
            fail(Exit::internal, "quantize: a kept operand has no scheme");
        case Rounding::nearest:
            return spec.grid == Grid::tile ? for_rule<NearestTiles>(spec.rule, f)
                                           : for_rule<NearestBlocks>(spec.rule, f);
        case Rounding::stochastic:
            return for_rule<StochasticBlocks>(spec.rule, f);
        case Rounding::ms_eden:
            fail(Exit::internal, "quantize: MS-EDEN is for the tiled kernels");
    }
}

}  // namespace

void quantize(Context& ctx, const Quantized& out, Operand source, const Amax* amax, const QuantSpec& spec,
              const Rotation& rotation, const Address& address) {
    check_request(out, source, spec, rotation);
    if (tiles_can(spec) && (source.transposed || rotation.size > 0 || spec.rounding != Rounding::nearest)) {
        const TileRequest request{&out, &spec, &rotation, &address, amax};
        Amax* found = Scratch(ctx, "quantize").take<Amax>(2);
        return quantize_tiles(ctx, source_of(source, false), source.transposed ? TileRequest{} : request,
                              source.transposed ? request : TileRequest{}, found);
    }
    const bool keep = spec.rounding == Rounding::keep;
    const bool exact_codes = keep && source.q && rotation.size == 0;
    const QuantizeInput in{source_of(source, exact_codes), rotation_of(rotation, address), out.rows,
                           out.inner};
    const int64_t tiles = int64_t(blocks_for(out.rows, kTileRows)) * blocks_for(out.inner, kTileInner);
    const Launch launch{stream_of(ctx), strided_blocks(tiles, 1), kTileThreads};
    if (keep)
        return launch(keep_kernel, output_of(out), in,
                      exact_codes ? source.q->tensor_scale.as<float>() : nullptr);
    Amax* found = Scratch(ctx, "quantize").take<Amax>(1);
    for_scheme(spec, [&](auto scheme) {
        using Scheme = decltype(scheme);
        const bool known = amax && rotation.size == 0;
        if (!known) launch(maximum_kernel, cleared(ctx, found), in);
        launch(round_kernel<Scheme>, output_of(out), in, draws_of(address, out.inner),
               known ? &amax->bits : &found->bits);
    });
}

void quantize_gradient(Context& ctx, const Quantized* for_dgrad, const Quantized* for_wgrad, Tensor e,
                       const GemmSpec& dgrad, const GemmSpec& wgrad, const Address& dgrad_address,
                       const Address& wgrad_address) {
    const Operand straight{.dense = e}, transposed{.dense = e, .transposed = true};
    if (for_dgrad && for_wgrad && tiles_can(dgrad.a) && tiles_can(wgrad.a)) {
        check_request(*for_dgrad, straight, dgrad.a, dgrad.rotation);
        check_request(*for_wgrad, transposed, wgrad.a, wgrad.rotation);
        return quantize_tiles(ctx, source_of(straight, false),
                              {for_dgrad, &dgrad.a, &dgrad.rotation, &dgrad_address, nullptr},
                              {for_wgrad, &wgrad.a, &wgrad.rotation, &wgrad_address, nullptr},
                              Scratch(ctx, "quantize_gradient").take<Amax>(2));
    }
    if (for_dgrad) quantize(ctx, *for_dgrad, straight, nullptr, dgrad.a, dgrad.rotation, dgrad_address);
    if (for_wgrad) quantize(ctx, *for_wgrad, transposed, nullptr, wgrad.a, wgrad.rotation, wgrad_address);
}

size_t quantize_scratch(int64_t, int64_t) { return Scratch::rounded(2 * sizeof(Amax)); }

}  // namespace q2::cuda
