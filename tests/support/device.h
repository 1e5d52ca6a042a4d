// Test helpers: a backend by name, and tensors that live on it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "ops/backend.h"

namespace q2::test {

/// The named backend with plenty of scratch, or null (with the reason in *why) if this machine has none.
std::unique_ptr<Backend> open_backend(const std::string& name, std::string* why);

/// An owned tensor on a backend. Starts poisoned: NaNs, or 0xff in integers.
class DeviceTensor {
  public:
    DeviceTensor(Context& ctx, Dtype dtype, int64_t rows, int64_t cols);
    template <class T>
    DeviceTensor(Context& ctx, int64_t rows, int64_t cols, const std::vector<T>& values)
        : DeviceTensor(ctx, dtype_of<T>(), rows, cols) {
        require(int64_t(values.size()) == view_.size(), "a test tensor of ", rows, " x ", cols, " from ",
                values.size(), " values");
        upload(values.data());
    }

    const Tensor& view() const { return view_; }
    operator const Tensor&() const { return view_; }
    template <class T>
    std::vector<T> values() const {
        require(view_.dtype == dtype_of<T>(), "a test tensor is read in another type");
        std::vector<T> host(size_t(view_.size()));
        ctx_->ops->download(*ctx_, host.data(), view_.data, view_.bytes());
        return host;
    }
    /// float32 or bfloat16, as float32.
    std::vector<float> floats() const;

  private:
    void upload(const void* host);

    Context* ctx_;
    std::unique_ptr<DeviceMemory> memory_;
    Tensor view_;
};

/// |a - b| / |b| in the L2 norm; NaN if either holds one.
double relative_l2(const std::vector<float>& a, const std::vector<float>& b);

/// Skips the test, saying why, where the backend is not to be had.
#define OPEN_BACKEND_OR_SKIP(variable, name)                             \
    std::string variable##_why;                                          \
    const auto variable = q2::test::open_backend(name, &variable##_why); \
    if (!variable) GTEST_SKIP() << variable##_why

}  // namespace q2::test
