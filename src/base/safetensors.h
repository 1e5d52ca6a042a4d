// safetensors files (github.com/huggingface/safetensors): 8 bytes of header length, a JSON header, the data.
// The reader maps the file and trusts nothing in it; errors are Exit::data and name the file and the tensor.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"

namespace q2 {

/// A tensor inside a mapped file. `data` may be unaligned: copy it.
struct SafetensorsEntry {
    std::string dtype;  ///< "F32", "BF16", "I32", "U8", ...
    std::vector<int64_t> shape;
    const uint8_t* data = nullptr;
    size_t bytes = 0;  ///< product of the shape times the element's size, as checked
};

class SafetensorsFile {
  public:
    static constexpr uint64_t kMaxHeader = 100'000'000;  ///< bytes, as in the format's own library

    explicit SafetensorsFile(const std::string& path);

    const std::string& path() const { return file_.path(); }
    const std::map<std::string, SafetensorsEntry>& tensors() const { return tensors_; }
    const std::map<std::string, std::string>& metadata() const { return metadata_; }
    bool contains(const std::string& name) const { return tensors_.count(name) > 0; }
    /// Throws, naming the file, when there is no such tensor.
    const SafetensorsEntry& at(const std::string& name) const;

  private:
    MappedFile file_;
    std::map<std::string, SafetensorsEntry> tensors_;
    std::map<std::string, std::string> metadata_;
};

/// A tensor to write; `data` holds the product of the shape elements.
struct SafetensorsInput {
    std::string name, dtype;
    std::vector<int64_t> shape;
    const void* data = nullptr;
};

/// Writes `tensors`, widest elements first so that each is aligned to its element; the data start at a
/// multiple of 64. Whole or not at all.
FileSummary write_safetensors(const std::string& path, std::span<const SafetensorsInput> tensors,
                              const std::map<std::string, std::string>& metadata);

/// "(2, 3)", for messages.
std::string shape_text(std::span<const int64_t> shape);

}  // namespace q2
