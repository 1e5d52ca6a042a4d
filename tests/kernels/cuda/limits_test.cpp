// Sizes beyond 2^31 elements: the head's product and the loss index with 64 bits.
#include <cmath>

#include "tests/support/both_backends.h"

namespace q2::test {
namespace {

constexpr int64_t kRows = 65600, kVocab = 32768, kInner = 64;
static_assert(kRows * kVocab > int64_t(1) << 31);

/// The reference values are known without the CPU: only the last rows are looked at.
class CudaLimits : public BothBackends {
  protected:
    void SetUp() override {
        BothBackends::SetUp();
        if (IsSkipped()) return;
        try {
            memory_ = std::make_unique<DeviceMemory>(cuda(), size_t(kRows * kVocab) * sizeof(Bf16));
        } catch (const Error& e) {
            GTEST_SKIP() << e.what();
        }
    }
    Tensor logits() const { return {memory_->data(), Dtype::bf16, kRows, kVocab}; }
    Floats last_row() {
        std::vector<Bf16> row(kVocab);
        cuda().ops->download(cuda(), row.data(), logits().slice(kRows - 1, 1).data, kVocab * sizeof(Bf16));
        Floats values;
        for (const Bf16 x : row) values.push_back(to_float(x));
        return values;
    }

    std::unique_ptr<DeviceMemory> memory_;
};

TEST_F(CudaLimits, TheHeadsProductAndTheLossReachTheLastRow) {
    const LentScratch scratch(cuda(), cuda().ops->matmul_scratch(kRows, kVocab, kInner));
    Floats last(kRows * kInner, 0.0f);
    for (int64_t k = 0; k < kInner; ++k) last[size_t((kRows - 1) * kInner + k)] = 1.0f;
    Floats weight(kVocab * kInner, 0.0f);
    for (int64_t v = 0; v < kVocab; ++v) weight[size_t(v * kInner)] = float(v % 5);
    const DeviceTensor a = tensor_of(cuda(), Dtype::bf16, kRows, kInner, last);
    const DeviceTensor b = tensor_of(cuda(), Dtype::bf16, kVocab, kInner, weight);
    cuda().ops->matmul(cuda(), logits(), {.dense = a}, {.dense = b}, false);
    const Floats row = last_row();
    for (int64_t v = 0; v < kVocab; ++v) ASSERT_EQ(row[size_t(v)], float(v % 5)) << v;

    const DeviceTensor losses(cuda(), Dtype::f32, kRows, 1);
    const DeviceTensor targets(cuda(), kRows, 1, std::vector<int32_t>(size_t(kRows), 3));
    cuda().ops->cross_entropy(cuda(), losses, logits(), targets, 1024.0f, true);
    double sum = 0;
    for (int64_t v = 0; v < kVocab; ++v) sum += std::exp(double(v % 5));
    const Floats loss = losses.floats(), gradient = last_row();
    EXPECT_NEAR(loss[0], std::log(double(kVocab)), 1e-4);
    EXPECT_NEAR(loss[kRows - 1], std::log(sum) - 3, 1e-4);
    for (int64_t v = 0; v < kVocab; ++v) {
        const double want = 1024 * (std::exp(double(v % 5)) / sum - (v == 3));
        ASSERT_NEAR(gradient[size_t(v)], want, 1e-2 * std::abs(want)) << v;
    }
}

}  // namespace
}  // namespace q2::test
