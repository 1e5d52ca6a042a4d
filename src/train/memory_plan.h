// What a run will take, before it takes it: the functions that carve its memory, run on a counting arena.
#pragma once

#include "train/config.h"
#include "train/training_memory.h"

namespace q2 {

/// All that a training session takes on its device, scratch included, by Use. The scratch of the CPU depends
/// on its threads: with_threads() first.
Arena plan_training(const Config&, const Ops&);

/// Host memory, beside the above, that holds a copy of weights and moments, from which checkpoints are
/// written.
size_t checkpoint_copy_bytes(const Config&);
/// Tensors of a checkpoint on the disk; headers and manifest add some kilobytes.
size_t checkpoint_bytes(const Config&);

/// The largest valid train.micro_batch whose plan has at most `bytes`; 0 if none.
int64_t largest_micro_batch(const Config&, const Ops&, size_t bytes);
/// The same config with another micro-batch.
Config with_micro_batch(Config, int64_t micro_batch);

}  // namespace q2
