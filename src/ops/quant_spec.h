// A precision recipe is data: how each operand of a linear layer's three GEMMs is quantised (docs/NUMERICS.md
// section 7).
#pragma once

#include <string>

#include "base/nvfp4.h"

namespace q2 {

enum class Rounding { keep, nearest, stochastic, ms_eden };
enum class Grid { block, tile };            ///< one scale for 1x16 or for 16x16 elements
enum class Range { two_pass, post_hoc };    ///< MS-EDEN: tensor maximum first, or corrected over scales alone
enum class Source { original, quantised };  ///< what a backward operand is made from

/// How one operand is quantised, along its GEMM's inner dimension.
struct QuantSpec {
    Rounding rounding = Rounding::keep;
    Rule rule = Rule::six;           ///< nearest, stochastic
    Grid grid = Grid::block;         ///< nearest
    int correction = 128;            ///< ms_eden: elements that share a correction, 128 or 16
    Range range = Range::two_pass;   ///< ms_eden
    Source from = Source::original;  ///< backward operands W (dgrad) and X (wgrad)

    bool operator==(const QuantSpec&) const = default;
};

/// The randomised Hadamard transform of a GEMM's inner dimension: one field for both operands, so that the
/// rotations cancel in the product. size 0: none.
struct Rotation {
    int size = 0;    ///< 0, 16, 32, 64 or 128
    int rounds = 1;  ///< 1 or 2, each with its own signs
    bool redrawn =
        true;  ///< new signs for each step and micro-batch; otherwise those of step 0, micro-batch 0

    bool operator==(const Rotation&) const = default;
};

/// One GEMM, out = A B^T over an inner dimension; fprop (X, W), dgrad (E, W), wgrad (E, X).
struct GemmSpec {
    Rotation rotation;
    QuantSpec a, b;

    bool keeps_both() const { return a.rounding == Rounding::keep && b.rounding == Rounding::keep; }
    bool rereads_codes() const { return a.from == Source::quantised || b.from == Source::quantised; }

    bool operator==(const GemmSpec&) const = default;
};

struct Recipe {
    std::string name;
    GemmSpec fprop, dgrad, wgrad;

    bool operator==(const Recipe&) const = default;
};

/// Which GEMM of a linear layer, as a draw's address names it.
enum Gemm : uint32_t { kFprop = 0, kDgrad = 1, kWgrad = 2 };

/// What a quantised inner dimension must be a multiple of.
inline int64_t inner_multiple(const QuantSpec& spec, const Rotation& rotation) {
    const int64_t group = spec.rounding == Rounding::ms_eden ? spec.correction : kBlock;
    return group > rotation.size ? group : rotation.size;
}

}  // namespace q2
