// Tiled quantisers of backward operands: an output gradient in both orientations, or one operand from saved
// codes, a float32 or a bfloat16 matrix, rotated or transposed or both.
//
// Bytes an element, dense bfloat16 results: the gradient in both orientations reads 2 for the two maxima and
// 2 again, and writes 2 + 2: 8, the fewest that two passes allow. Both tensor scales need a maximum over all
// rotated elements, so a second look is unavoidable (a rotated float32 copy would cost 16). From codes:
// 0.5625 twice and 2 written. The second pass runs through the tiles backwards, to find what the first left
// in L2.
#include "kernels/cuda/device/shared.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/quantize_request.h"
#include "kernels/cuda/quantize_tile_round.h"

namespace q2::cuda {
namespace {

/// One orientation; as stored (0) or transposed (1).
struct TileOperand {
    bool wanted;
    QuantizeRotation rotation;
    QuantizeOutput out;
    BlockDraws draws;
    int64_t rows, inner;
    uint32_t* largest;
};

struct TileArguments {
    QuantizeSource source;
    TileOperand operand[2];
    int64_t across, tiles;
};

__device__ __forceinline__ void fill(const QuantizeSource& s, int64_t row0, int64_t col0,
                                     TileShared& shared) {
    switch (s.stored) {
        case Stored::f32:
            return fill_tile<Stored::f32>(s, row0, col0, shared);
        case Stored::bf16:
            return fill_tile<Stored::bf16>(s, row0, col0, shared);
        case Stored::codes:
            return fill_tile<Stored::codes>(s, row0, col0, shared);
    }
}

/// This thread's half run of one orientation of the tile at (row0, k0) of the operand, rotated but for the
/// factor that is returned. All threads call; the tile must be filled and the signs drawn.
__device__ __forceinline__ float take_half(const TileOperand& o, bool transposed, int64_t row0, int64_t k0,
                                           TileShared& shared, const HalfPlace& place, HalfInOperand& at,
                                           float (&x)[kHalf]) {
    at.row = row0 + place.row;
    at.block = k0 / kBlock + place.half * kHalfBlocks;
#pragma unroll
    for (int b = 0; b < kHalfBlocks; ++b) at.inside[b] = at.row < o.rows && (at.block + b) * kBlock < o.inner;
    if (transposed)
        read_along_column(shared, place, x);
    else
        read_along_row(shared, place, x);
    return rotate_half(x, o.rotation.rotation, shared, place.half);
}

template <class Statistic>
__global__ void __launch_bounds__(kSideThreads, 2)
    tile_statistic_kernel(const __grid_constant__ TileArguments in) {
    TileShared& shared = *dynamic_shared<TileShared>();
    const int64_t row0 = blockIdx.x / in.across * kSide, col0 = blockIdx.x % in.across * kSide;
    const HalfPlace place;
    fill(in.source, row0, col0, shared);
#pragma unroll 1
    for (int i = 0; i < 2; ++i) {
        const TileOperand& o = in.operand[i];
        const int64_t operand_row = i == 0 ? row0 : col0, k = i == 0 ? col0 : row0;
        if (!o.wanted || operand_row >= o.rows || k >= o.inner) continue;
        draw_tile_signs(o.rotation, shared);
        __syncthreads();
        HalfInOperand at;
        float x[kHalf];
        const float factor = take_half(o, i == 1, operand_row, k, shared, place, at, x);
        block_amax_into(o.largest, Statistic::statistic(x, factor, at));
    }
}

template <class Scheme>
__global__ void __launch_bounds__(kSideThreads, 2)
    tile_round_kernel(const __grid_constant__ TileArguments in) {
    TileShared& shared = *dynamic_shared<TileShared>();
    const int64_t tile = in.tiles - 1 - blockIdx.x;
    const int64_t row0 = tile / in.across * kSide, col0 = tile % in.across * kSide;
    const HalfPlace place;
    fill(in.source, row0, col0, shared);
#pragma unroll 1
    for (int i = 0; i < 2; ++i) {
        const TileOperand& o = in.operand[i];
        const int64_t operand_row = i == 0 ? row0 : col0, k = i == 0 ? col0 : row0;
        if (!o.wanted) continue;
        const float s_t = Scheme::scale_of(float_of(*o.largest));
        if (tile == 0 && threadIdx.x == 0) *o.out.tensor_scale = s_t;
        if (operand_row >= o.rows || k >= o.inner) continue;
        draw_tile_signs(o.rotation, shared);
        if (Scheme::kReciprocals && threadIdx.x <= kE4m3Max)
            shared.reciprocals[threadIdx.x] = scale_reciprocal(uint8_t(threadIdx.x), s_t);
        __syncthreads();  // the tile, signs and reciprocals are there; the staging area has been read
        HalfInOperand at;
        float x[kHalf];
        scale_all(x, take_half(o, i == 1, operand_row, k, shared, place, at, x));
        uint8_t scale[kHalfBlocks];
        Scheme::encode(at, x, s_t, shared, o.draws, scale);
        put_half(o.out, shared, place, at, x, scale);
        __syncthreads();  // the staging area is written; signs and reciprocals have been read
        if (o.out.dense) write_staged(shared, o.out.dense, o.rows, o.inner, operand_row, k);
    }
}

// ---- From requests to launches

template <class F>
void for_tile_scheme(const QuantSpec& spec, F f) {
    if (spec.rounding == Rounding::nearest) return f(NearestSixHalf{});
    if (spec.rounding == Rounding::stochastic) return f(StochasticSixHalf{});
    if (spec.range == Range::post_hoc) return f(EdenPostHocHalf{});
    return spec.correction == kSide ? f(EdenHalf<kSide>{}) : f(EdenHalf<kBlock>{});
}

TileOperand operand_of(const TileRequest& r, Amax* found) {
    if (!r.out) return {};
    return {true,
            rotation_of(*r.rotation, *r.address),
            output_of(*r.out),
            draws_of(*r.address, r.out->inner),
            r.out->rows,
            r.out->inner,
            &found->bits};
}

bool knows_maximum(const TileRequest& r) {
    return r.amax && r.rotation->size == 0 &&
           !(r.spec->rounding == Rounding::ms_eden && r.spec->range == Range::post_hoc);
}

/// The tiles of the source and of its padding.
void cover(TileArguments& in) {
    const TileOperand &straight = in.operand[0], &transposed = in.operand[1];
    const int64_t rows =
        std::max(straight.wanted ? straight.rows : 0, transposed.wanted ? transposed.inner : 0);
    const int64_t cols =
        std::max(straight.wanted ? straight.inner : 0, transposed.wanted ? transposed.rows : 0);
    in.across = blocks_for(cols, kSide);
    in.tiles = in.across * blocks_for(rows, kSide);
}

void launch_tiles(Context& ctx, const QuantizeSource& source, const TileRequest& straight,
                  const TileRequest& transposed, Amax* found) {
    TileArguments in{source, {operand_of(straight, found), operand_of(transposed, found + 1)}, 0, 0};
    cover(in);
    const TileRequest& any = straight.out ? straight : transposed;
    const Launch launch{stream_of(ctx), blocks_for(in.tiles, 1), kSideThreads, sizeof(TileShared)};
    for_tile_scheme(*any.spec, [&](auto scheme) {
        using Scheme = decltype(scheme);
        if (knows_maximum(any)) {
            in.operand[any.out == straight.out ? 0 : 1].largest = const_cast<uint32_t*>(&any.amax->bits);
        } else {
            Q2_CUDA(cudaMemsetAsync(found, 0, 2 * sizeof *found, stream_of(ctx)));
            launch(tile_statistic_kernel<typename Scheme::Statistic>, in);
        }
        launch(tile_round_kernel<Scheme>, in);
    });
}

}  // namespace

bool tiles_can(const QuantSpec& spec) {
    switch (spec.rounding) {
        case Rounding::keep:
            return false;
        case Rounding::nearest:
            return spec.rule == Rule::six && spec.grid == Grid::block;
        case Rounding::stochastic:
            return spec.rule == Rule::six;
        case Rounding::ms_eden:
            return true;
    }
    return false;
}

void quantize_tiles(Context& ctx, const QuantizeSource& source, const TileRequest& straight,
                    const TileRequest& transposed, Amax* found) {
    if (straight.out && transposed.out && !(*straight.spec == *transposed.spec)) {
        launch_tiles(ctx, source, straight, {}, found);
        launch_tiles(ctx, source, {}, transposed, found);
        return;
    }
    launch_tiles(ctx, source, straight, transposed, found);
}

}  // namespace q2::cuda
