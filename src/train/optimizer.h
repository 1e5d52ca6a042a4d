// The end of a step: global norm, clipping, AdamW (decoupled decay, arXiv 1711.05101) on every parameter.
#pragma once

#include "train/training_memory.h"

namespace q2 {

/// Which parameters decay: the blocks' matrices (`linear`), or every tensor of two dimensions (`matrices`).
bool decays(const Parameter&, const std::string& decay);
/// Updates memory.model.params from memory.model.grads, unless the state's skip flag is set on the device.
void optimizer_update(Context&, const TrainingMemory&, const OptimizerConfig&);

}  // namespace q2
