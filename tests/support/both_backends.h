// Tests that hold the CUDA table against the CPU table: one run of an op written once, run on both, with
// fresh random inputs (the seed is printed; QUARTET2_TEST_SEED repeats a run) and poisoned outputs.
#pragma once

#include <cstdlib>
#include <cstring>
#include <random>

#include "tests/support/device.h"

namespace q2::test {

using Floats = std::vector<float>;

/// A tensor of float32 or bfloat16 made from float32 values.
inline DeviceTensor tensor_of(Context& ctx, Dtype dtype, int64_t rows, int64_t cols, const Floats& values) {
    if (dtype == Dtype::f32) return DeviceTensor(ctx, rows, cols, values);
    std::vector<Bf16> rounded;
    for (const float x : values) rounded.push_back(to_bf16(x));
    return DeviceTensor(ctx, rows, cols, rounded);
}

/// A StepState on a backend.
class DeviceState {
  public:
    DeviceState(Context& ctx, const StepState& state) : ctx_(&ctx), memory_(ctx, sizeof state) {
        ctx.ops->upload(ctx, memory_.data(), &state, sizeof state);
    }
    StepState* get() const { return static_cast<StepState*>(memory_.data()); }
    StepState value() const {
        StepState state;
        ctx_->ops->download(*ctx_, &state, get(), sizeof state);
        return state;
    }

  private:
    Context* ctx_;
    DeviceMemory memory_;
};

/// An amax output, poisoned before the op.
class DeviceAmax {
  public:
    explicit DeviceAmax(Context& ctx) : word_(ctx, Dtype::i32, 1, 1) {}
    Amax* get() const { return static_cast<Amax*>(word_.view().data); }
    uint32_t bits() const { return uint32_t(word_.values<int32_t>()[0]); }

  private:
    DeviceTensor word_;
};

/// What an op should report for what it stored.
inline uint32_t amax_bits(const Floats& stored) {
    uint32_t largest = 0;
    for (const float x : stored) largest = std::max(largest, magnitude_bits(x));
    return largest;
}

class BothBackends : public testing::Test {
  protected:
    void SetUp() override {
        std::string why;
        cuda_ = open_backend("cuda", &why);
        if (!cuda_) GTEST_SKIP() << why;
        cpu_ = open_backend("cpu", &why);
        ASSERT_TRUE(cpu_) << why;
        const char* given = std::getenv("QUARTET2_TEST_SEED");
        seed_ = given ? uint32_t(std::strtoul(given, nullptr, 10)) : std::random_device{}();
        std::printf("seed %u\n", seed_);
        generator_.seed(seed_);
    }

    Context& cpu() { return cpu_->context(); }
    Context& cuda() { return cuda_->context(); }
    uint32_t seed() const { return seed_; }

    /// Normal deviates, exact in bfloat16, so that both float types start from the same values.
    Floats normals(int64_t count, float scale = 1.0f) {
        std::normal_distribution<float> normal(0.0f, scale);
        Floats values;
        for (int64_t i = 0; i < count; ++i) values.push_back(to_float(to_bf16(normal(generator_))));
        return values;
    }
    std::vector<int32_t> integers(int64_t count, int32_t low, int32_t high) {
        std::uniform_int_distribution<int32_t> uniform(low, high);
        std::vector<int32_t> values;
        for (int64_t i = 0; i < count; ++i) values.push_back(uniform(generator_));
        return values;
    }

    /// run(ctx) returns an op's outputs. The GPU's are the CPU's up to tolerance * (1 + |x|) an element, and
    /// the same bits twice.
    template <class Run>
    void compare(const std::string& what, double tolerance, Run run) {
        const std::vector<Floats> want = run(cpu()), got = run(cuda()), again = run(cuda());
        ASSERT_EQ(got.size(), want.size()) << what;
        for (size_t output = 0; output < want.size(); ++output) {
            const std::string name = what + ", output " + std::to_string(output);
            ASSERT_EQ(got[output].size(), want[output].size()) << name;
            for (size_t i = 0; i < want[output].size(); ++i) {
                const double error = std::abs(double(got[output][i]) - want[output][i]);
                ASSERT_LE(error, tolerance * (1 + std::abs(want[output][i])))
                    << name << ", element " << i << ": " << got[output][i] << " on the GPU, "
                    << want[output][i] << " on the CPU";
            }
            ASSERT_EQ(std::memcmp(got[output].data(), again[output].data(), got[output].size() * 4), 0)
                << name << " has other bits the second time";
        }
    }

  private:
    std::unique_ptr<Backend> cpu_, cuda_;
    uint32_t seed_ = 0;
    std::mt19937 generator_;
};

/// What an element may differ by where outputs are stored in this type.
inline double tolerance_of(Dtype stored) { return stored == Dtype::f32 ? 2e-5 : 1e-2; }

constexpr Dtype kFloatTypes[] = {Dtype::f32, Dtype::bf16};

}  // namespace q2::test
