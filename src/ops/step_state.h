// The step's numbers in device memory: a captured graph redraws when they change, and an update that must not
// happen does not.
#pragma once

#include <cstdint>
#include <limits>

#include "base/numeric.h"
#include "base/rng.h"

namespace q2 {

/// Why AdamW changed nothing.
enum SkipReason : uint32_t { kNotSkipped = 0, kNonFinite = 1, kHighLoss = 2, kHighNorm = 3 };

struct StepState {
    // Written by the host before a step.
    uint64_t seed = 0;
    uint32_t step = 0;
    uint32_t micro_batch = 0;  ///< within the step, over all ranks; rewritten before each micro-batch
    float learning_rate = 0;
    float moment1_correction = 1, moment2_correction = 1;  ///< 1 - beta^t of AdamW, t = step + 1
    float loss_limit = kNoLimit, norm_limit = kNoLimit;    ///< an update above either is not made
    // Written by ops, cleared by the host.
    float loss = 0;         ///< mean over the step's target tokens
    float grad_norm = 0;    ///< before clipping
    float clip_factor = 1;  ///< min(1, clip / (grad_norm + 1e-6))
    uint32_t skip = 0;      ///< a SkipReason; unless kNotSkipped, AdamW changes nothing

    static constexpr float kNoLimit = std::numeric_limits<float>::infinity();
    /// AdamW's second moment is of squares, which float32 holds up to 3.4e38.
    static constexpr float kLargestNorm = 1.8e19f;  ///< of the clipped gradient
};

/// Whether the update of a step with this loss and norm is made. A skip that stands stays.
Q2_HD uint32_t skip_reason(const StepState& s) {
    constexpr uint32_t kInfinity = 0x7f800000u;
    if (s.skip != kNotSkipped) return s.skip;
    if (magnitude_bits(s.loss) >= kInfinity || magnitude_bits(s.grad_norm) >= kInfinity) return kNonFinite;
    if (s.grad_norm * s.clip_factor > StepState::kLargestNorm) return kNonFinite;
    return s.loss > s.loss_limit ? kHighLoss : s.grad_norm > s.norm_limit ? kHighNorm : kNotSkipped;
}

/// Explicit draws in place of the addressed ones, for tests. Each may be null.
struct Draws {
    const float* uniform_element = nullptr;  ///< (rows, inner)
    const float* uniform_block = nullptr;    ///< (rows, inner / 16)
    const float* signs = nullptr;            ///< (rotation size)
    const float* signs2 = nullptr;           ///< (rotation size), second round
};

/// Whose draws an operand takes. "Once a step": those of micro-batch 0 stand for all (`requantize_weights:
/// step`).
struct Address {
    const StepState* state = nullptr;
    uint32_t layer = 0, gemm = 0, operand = 0;
    bool rounding_once_a_step = false, signs_once_a_step = false;
    const Draws* given = nullptr;
};

/// The rounding draws of the addressed operand, with the state as the device holds it.
Q2_HD DrawStream rounding_stream(const StepState& s, const Address& a) {
    return draw_stream(s.seed, s.step, a.rounding_once_a_step ? 0 : s.micro_batch, a.layer, a.gemm, a.operand,
                       Purpose::rounding);
}

/// The signs of a rotation round (0 or 1), shared by both operands of the GEMM: operand 0, row 0. Signs that
/// are not redrawn are those of step 0, micro-batch 0.
Q2_HD DrawStream signs_stream(const StepState& s, const Address& a, int round, bool redrawn) {
    const uint32_t micro_batch = a.signs_once_a_step || !redrawn ? 0 : s.micro_batch;
    return draw_stream(s.seed, redrawn ? s.step : 0, micro_batch, a.layer, a.gemm, 0,
                       round == 0 ? Purpose::signs : Purpose::signs2);
}

}  // namespace q2
