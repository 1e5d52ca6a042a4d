// What log.telemetry_every writes: how the quantisers of every linear layer did in one micro-batch.
#pragma once

#include <nlohmann/json.hpp>

#include "train/step.h"

namespace q2 {

/// Repeats micro-batch 0 of `step`, after its update, under a QuantiserObserver. Leaves weights and moments
/// alone; all else that it writes, the next step writes anew. An array of {"layer", "operand", "saturated",
/// "zero"}, with "second" where a scale has candidates and "eden", "eden_deviation" where it is corrected;
/// operands are "fprop.x", "fprop.w", "dgrad.e", "dgrad.w", "wgrad.e", "wgrad.x". Kept operands are left out.
/// Of every layer also its results {"layer", "operand", "cosine"}, "dgrad.dx" and "wgrad.dw", with their
/// cosine (linear/gradient_cosine.h); null where it has none.
nlohmann::json telemetry(Training&, int64_t step);

}  // namespace q2
