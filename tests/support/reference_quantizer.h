// The quantisers of docs/NUMERICS.md written once more, as naively as the text reads: sections 2 to 6 over
// vectors of float32, from the scalar formats and Philox alone. Slow, and apart from base/nvfp4.h on purpose.
#pragma once

#include <vector>

#include "ops/quant_spec.h"

namespace q2::test {

/// Section 2's table: whose draws.
struct DrawAddress {
    uint64_t seed = 0;
    uint32_t step = 0, micro_batch = 0, layer = 0, gemm = 0, operand = 0;
};

/// Draws of the rounding, and of the signs (whose micro-batch can be another).
struct ReferenceDraws {
    DrawAddress rounding, signs;
};

struct ReferenceOperand {
    std::vector<uint8_t> codes;   // (rows, inner), one a byte
    std::vector<uint8_t> scales;  // (rows, inner/16), a tile's repeated on its rows
    float tensor_scale = 1;
    std::vector<float> value;  // (rows, inner); of a kept operand x itself
};

/// x (rows, inner) under section 5's transform.
std::vector<float> reference_rotate(std::vector<float> x, const Rotation&, const DrawAddress& signs);
/// x (rows, inner): rotated, then rounded.
ReferenceOperand reference_quantize(const std::vector<float>& x, int64_t rows, int64_t inner,
                                    const QuantSpec&, const Rotation&, const ReferenceDraws&);

/// (cols, padded_rows) of a (rows, cols) matrix, the new columns zero.
std::vector<float> transposed(const std::vector<float>& x, int64_t rows, int64_t cols, int64_t padded_rows);

}  // namespace q2::test
