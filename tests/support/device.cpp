#include "tests/support/device.h"

#include <cmath>

namespace q2::test {

std::unique_ptr<Backend> open_backend(const std::string& name, std::string* why) {
    try {
        return std::make_unique<Backend>(name, 0);
    } catch (const Error& e) {
        *why = e.what();
        return nullptr;
    }
}

DeviceTensor::DeviceTensor(Context& ctx, Dtype dtype, int64_t rows, int64_t cols)
    : ctx_(&ctx), view_{nullptr, dtype, rows, cols} {
    memory_ = std::make_unique<DeviceMemory>(ctx, std::max<size_t>(view_.bytes(), 1));
    view_.data = memory_->data();
    upload(std::vector<unsigned char>(view_.bytes(), 0xff).data());
}

void DeviceTensor::upload(const void* host) {
    ctx_->ops->upload(*ctx_, view_.data, host, view_.bytes());
    ctx_->ops->synchronize(*ctx_);
}

std::vector<float> DeviceTensor::floats() const {
    if (view_.dtype == Dtype::f32) return values<float>();
    std::vector<float> out;
    for (const Bf16 x : values<Bf16>()) out.push_back(to_float(x));
    return out;
}

double relative_l2(const std::vector<float>& a, const std::vector<float>& b) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < b.size(); ++i) {
        difference += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
        norm += double(b[i]) * b[i];
    }
    return std::sqrt(difference / (norm > 0 ? norm : 1));
}

}  // namespace q2::test
