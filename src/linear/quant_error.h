// How far a quantised operand lies from its source: the squared error over the source's power.
#pragma once

#include <string>
#include <vector>

#include "ops/backend.h"

namespace q2 {

/// A way to quantise one operand, with the rotation of its GEMM.
struct QuantCase {
    std::string name;
    QuantSpec spec;
    Rotation rotation;
};

/// Every rule on both grids, stochastic rounding, and MS-EDEN in its forms, with the rotations of the
/// recipes.
std::vector<QuantCase> quant_cases();

struct SquaredError {
    double error = 0, power = 0;
    double relative() const { return power > 0 ? error / power : 0; }
};

/// x (rows, inner) f32 on the CPU's backend; the error is taken after the rotation, which keeps lengths.
/// inner must be a multiple of inner_multiple(spec, rotation), rows of 16 for tiles.
SquaredError quant_error(Context&, Tensor x, const QuantCase&, uint64_t seed);

/// The values that x quantises to, rotated as the case says.
std::vector<float> quantised_values(Context&, Tensor x, const QuantCase&, uint64_t seed);

}  // namespace q2
