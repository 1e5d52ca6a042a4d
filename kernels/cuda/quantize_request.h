// What a quantiser's kernels are told, from what the table's slots are asked.
#pragma once

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/quantize_round.h"

namespace q2::cuda {

/// exact_codes: leave the codes' tensor scale to the product.
inline QuantizeSource source_of(const Operand& o, bool exact_codes) {
    if (!o.q)
        return {o.dense.dtype == Dtype::f32 ? Stored::f32 : Stored::bf16,
                o.transposed,
                rows_are_wide({o.dense}),
                false,
                o.dense.data,
                nullptr,
                nullptr,
                o.dense.rows,
                o.dense.cols};
    return {Stored::codes,
            o.transposed,
            true,
            o.q->grid() == Grid::tile,
            o.q->codes.as<uint8_t>(),
            o.q->scales.as<uint8_t>(),
            exact_codes ? nullptr : o.q->tensor_scale.as<float>(),
            o.q->rows,
            o.q->inner};
}

inline QuantizeRotation rotation_of(const Rotation& rotation, const Address& a) {
    return {rotation, a, {a.given ? a.given->signs : nullptr, a.given ? a.given->signs2 : nullptr}};
}

inline BlockDraws draws_of(const Address& a, int64_t inner) {
    return {a, a.given ? a.given->uniform_element : nullptr, a.given ? a.given->uniform_block : nullptr,
            inner};
}

inline QuantizeOutput output_of(const Quantized& out) {
    return {static_cast<uint8_t*>(out.codes.data), static_cast<uint8_t*>(out.scales.data),
            out.dense ? out.dense.as<Bf16>() : nullptr, out.tensor_scale.as<float>(), out.inner};
}

/// One operand to make from a source, by the tiled kernels of quantize_tile.cu.
struct TileRequest {
    const Quantized* out;  // null: not wanted
    const QuantSpec* spec;
    const Rotation* rotation;
    const Address* address;
    const Amax* amax;  // of the source, or null
};

/// Whether the tiled kernels know this scheme.
bool tiles_can(const QuantSpec& spec);

/// Quantises a source along its rows (straight) and along its columns (transposed), from one read a pass if
/// both are wanted in one scheme. found: two of them.
void quantize_tiles(Context&, const QuantizeSource&, const TileRequest& straight,
                    const TileRequest& transposed, Amax* found);

}  // namespace q2::cuda
