#include "train/tensor_io.h"

#include <cmath>
#include <cstring>

#include "base/safetensors.h"

namespace q2 {
namespace {

const char* file_name_of(Dtype dtype) {
    switch (dtype) {
        case Dtype::f32:
            return "F32";
        case Dtype::bf16:
            return "BF16";
        case Dtype::i32:
            return "I32";
        case Dtype::u8:
            return "U8";
    }
    fail(Exit::internal, "a dtype that safetensors files do not have");
}

float half_value(uint16_t bits) {
    const int exponent = bits >> 10 & 31;
    const float sign = bits >> 15 ? -1.0f : 1.0f, mantissa = float(bits & 1023);
    if (exponent == 31) return mantissa > 0 ? std::nanf("") : sign * INFINITY;
    return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}

bool widens(const NamedTensor& tensor, const SafetensorsEntry& entry) {
    return tensor.dtype == Dtype::f32 && (entry.dtype == "BF16" || entry.dtype == "F16");
}

void check_fits(const std::string& path, const NamedTensor& tensor, const SafetensorsEntry& entry,
                FileDtype file_dtype) {
    check(entry.shape == tensor.shape, Exit::data, path, ": tensor \"", tensor.name, "\" has shape ",
          shape_text(entry.shape), ", the model needs ", shape_text(tensor.shape));
    check(entry.dtype == file_name_of(tensor.dtype) ||
              (file_dtype == FileDtype::widen && widens(tensor, entry)),
          Exit::data, path, ": tensor \"", tensor.name, "\" is ", entry.dtype, ", needed is ",
          file_name_of(tensor.dtype));
}

void copy(const NamedTensor& tensor, const SafetensorsEntry& entry) {
    if (!widens(tensor, entry)) {
        if (entry.bytes > 0) std::memcpy(tensor.data, entry.data, entry.bytes);
        return;
    }
    auto* out = static_cast<float*>(tensor.data);
    for (size_t i = 0; i < entry.bytes / 2; ++i) {
        uint16_t bits;
        std::memcpy(&bits, entry.data + 2 * i, sizeof bits);
        out[i] = entry.dtype == "BF16" ? to_float(Bf16{bits}) : half_value(bits);
    }
}

}  // namespace

FileSummary save_tensors(const std::string& path, std::span<const NamedTensor> tensors,
                         const std::map<std::string, std::string>& metadata) {
    std::vector<SafetensorsInput> inputs;
    for (const NamedTensor& tensor : tensors)
        inputs.push_back({tensor.name, file_name_of(tensor.dtype), tensor.shape, tensor.data});
    return write_safetensors(path, inputs, metadata);
}

void load_tensors(const std::string& path, std::span<const NamedTensor> tensors, FileDtype file_dtype) {
    const SafetensorsFile file(path);
    for (const NamedTensor& tensor : tensors) check_fits(path, tensor, file.at(tensor.name), file_dtype);
    for (const NamedTensor& tensor : tensors) copy(tensor, file.at(tensor.name));
}

}  // namespace q2
