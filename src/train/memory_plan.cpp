#include "train/memory_plan.h"

namespace q2 {
namespace {

/// Weights and two moments, each in float32.
constexpr size_t kSavedBytes = 3 * sizeof(float);

bool is_valid(const Config& c) {
    try {
        validate(c);
        return true;
    } catch (const Error&) {
        return false;
    }
}

}  // namespace

Arena plan_training(const Config& c, const Ops& ops) {
    Arena count;
    carve_training(c, ops, count);
    count.take(training_scratch(c, ops), Use::scratch);
    return count;
}

size_t checkpoint_copy_bytes(const Config& c) {
    return kSavedBytes * size_t(parameter_table(c.model, c.train.init_std).size);
}

size_t checkpoint_bytes(const Config& c) {
    return kSavedBytes * size_t(parameter_table(c.model, c.train.init_std).count());
}

Config with_micro_batch(Config c, int64_t micro_batch) {
    c.train.micro_batch = micro_batch;
    return c;
}

int64_t largest_micro_batch(const Config& c, const Ops& ops, size_t bytes) {
    const auto fits = [&](int64_t batch) {
        return plan_training(with_micro_batch(c, batch), ops).used() <= bytes;
    };
    int64_t low = 0, high = kMaxMicroBatchTokens / c.data.sequence + 1;
    while (high - low > 1) (fits((low + high) / 2) ? low : high) = (low + high) / 2;
    // 16x16 tiles of tokens want some multiple, 16 at most.
    while (low > 0 && !is_valid(with_micro_batch(c, low))) --low;
    return low;
}

}  // namespace q2
