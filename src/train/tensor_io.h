// Host tensors to and from safetensors files, by name.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "tensor/tensor.h"

namespace q2 {

/// A tensor in host memory under the name a file knows it by, row-major and contiguous.
struct NamedTensor {
    std::string name;
    Dtype dtype = Dtype::f32;
    std::vector<int64_t> shape;
    void* data = nullptr;
};

FileSummary save_tensors(const std::string& path, std::span<const NamedTensor> tensors,
                         const std::map<std::string, std::string>& metadata = {});

/// exact: the file's dtype must be the tensor's. widen: float32 tensors may also come from BF16 or F16, as in
/// a Hugging Face model.safetensors.
enum class FileDtype { exact, widen };

/// Fills every tensor from the file; the file may hold others. Throws Exit::data, naming file and tensor, at
/// a missing name, another shape or another dtype, before anything is copied.
void load_tensors(const std::string& path, std::span<const NamedTensor> tensors,
                  FileDtype file_dtype = FileDtype::exact);

}  // namespace q2
