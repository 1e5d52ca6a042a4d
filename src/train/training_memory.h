// All memory of a run, carved once by one function: on a counting arena for `plan`, then on the device.
#pragma once

#include "model/model.h"
#include "train/config.h"

namespace q2 {

/// N is the larger of the training and the evaluation micro-batch's tokens.
struct TrainingMemory {
    Model model;
    Activations train, eval;  ///< of the training and the evaluation micro-batch, over the same bytes
    Tensor moment1, moment2;  ///< (1, table.size) f32
    StepState* state;         ///< on the device
    float* eval_loss;         ///< on the device
    Tensor ids, targets;      ///< (N, 1) i32
};

TrainingMemory carve_training(const Config&, const Ops&, Arena&);
/// The same without gradients, moments and training activations: for eval and generate, `batch` sequences at
/// a time.
TrainingMemory carve_inference(const Config&, const Ops&, int64_t batch, Arena&);
size_t training_scratch(const Config&, const Ops&);
size_t inference_scratch(const Config&, const Ops&, int64_t batch);

}  // namespace q2
