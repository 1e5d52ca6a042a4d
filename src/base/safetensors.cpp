#include "base/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/strict_json.h"

namespace q2 {
namespace {

using Json = nlohmann::json;

constexpr size_t kLengthBytes = 8, kDataAlignment = 64, kMaxRank = 16;

/// 0 for an unknown dtype.
size_t element_size(const std::string& dtype) {
    static const std::map<std::string, size_t> sizes = {
        {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
        {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},
        {"I32", 4},  {"F32", 4}, {"U64", 8}, {"I64", 8},     {"F64", 8}};
    const auto found = sizes.find(dtype);
    return found == sizes.end() ? 0 : found->second;
}

std::string_view header_text(const MappedFile& file) {
    check(file.size() >= kLengthBytes, Exit::data, file.path(), ": ", file.size(),
          " bytes are too few for a safetensors file");
    uint64_t length;
    std::memcpy(&length, file.data(), sizeof length);
    check(length <= SafetensorsFile::kMaxHeader, Exit::data, file.path(), ": a header of ", length,
          " bytes is beyond the limit of ", SafetensorsFile::kMaxHeader, "; is this a safetensors file?");
    check(length <= file.size() - kLengthBytes, Exit::data, file.path(), ": a header of ", length,
          " bytes passes the end of the file (", file.size(), " bytes); the file is truncated");
    return file.text().substr(kLengthBytes, size_t(length));
}

/// A header never nests deeper than an offset's list.
Json parse_header(const MappedFile& file) {
    const Json header = parse_json(header_text(file), file.path() + ": the header", {.depth = 3});
    check(header.is_object(), Exit::data, file.path(), ": the header is not a JSON object");
    return header;
}

std::map<std::string, std::string> parse_metadata(const std::string& path, const Json& json) {
    check(json.is_object(), Exit::data, path, ": __metadata__ is not an object");
    std::map<std::string, std::string> metadata;
    for (const auto& [key, value] : json.items()) {
        check(value.is_string(), Exit::data, path, ": __metadata__ \"", clipped(key), "\" is not a string");
        metadata[key] = value.get<std::string>();
    }
    return metadata;
}

/// Non-negative integers that an int64 holds; `where` names file, tensor and field.
std::vector<int64_t> parse_sizes(const std::string& where, const Json& json) {
    check(json.is_array(), Exit::data, where, " is not a list");
    check(json.size() <= kMaxRank, Exit::data, where, " has ", json.size(), " entries, more than ", kMaxRank);
    std::vector<int64_t> sizes;
    for (const Json& item : json) {
        check(item.is_number_unsigned() &&
                  item.get<uint64_t>() <= uint64_t(std::numeric_limits<int64_t>::max()),
              Exit::data, where, " holds ", shown(item), ", not a size");
        sizes.push_back(item.get<int64_t>());
    }
    return sizes;
}

/// Product of the shape times the element's size. A size of 0 wins over an overflow of the others.
size_t byte_count(const std::string& where, const std::vector<int64_t>& shape, size_t element) {
    if (std::count(shape.begin(), shape.end(), 0) > 0) return 0;
    size_t bytes = element;
    for (const int64_t size : shape)
        check(size > 0 && !__builtin_mul_overflow(bytes, size_t(size), &bytes), Exit::data, where,
              ": the size of shape ", shape_text(shape), " overflows");
    return bytes;
}

const Json& field_of(const std::string& where, const Json& json, const char* key) {
    const auto found = json.find(key);
    check(found != json.end(), Exit::data, where, " has no \"", key, "\"");
    return *found;
}

SafetensorsEntry parse_entry(const std::string& where, const Json& json, std::span<const uint8_t> data) {
    check(json.is_object(), Exit::data, where, " is not an object");
    for (const auto& [key, value] : json.items())
        check(key == "dtype" || key == "shape" || key == "data_offsets", Exit::data, where,
              " has an unknown key \"", clipped(key), "\"");
    SafetensorsEntry entry;
    const Json& dtype = field_of(where, json, "dtype");
    check(dtype.is_string() && element_size(dtype.get<std::string>()) > 0, Exit::data, where,
          " has the unknown dtype ", shown(dtype));
    entry.dtype = dtype.get<std::string>();
    entry.shape = parse_sizes(where + " shape", field_of(where, json, "shape"));

    const auto offsets = parse_sizes(where + " data_offsets", field_of(where, json, "data_offsets"));
    check(offsets.size() == 2, Exit::data, where, " has ", offsets.size(), " data_offsets, not 2");
    check(offsets[0] <= offsets[1], Exit::data, where, " begins at ", offsets[0], ", after its end ",
          offsets[1]);
    check(uint64_t(offsets[1]) <= data.size(), Exit::data, where, " ends at byte ", offsets[1], " of ",
          data.size(), " bytes of data; the file is truncated");
    entry.bytes = size_t(offsets[1] - offsets[0]);
    const size_t expected = byte_count(where, entry.shape, element_size(entry.dtype));
    check(entry.bytes == expected, Exit::data, where, ": ", entry.dtype, " ", shape_text(entry.shape),
          " takes ", expected, " bytes, its data_offsets give ", entry.bytes);
    entry.data = data.data() + offsets[0];
    return entry;
}

/// The tensors must cover the data without overlaps and holes, as in the format's own library: what no tensor
/// shows could be anything.
void check_cover(const std::string& path, const std::map<std::string, SafetensorsEntry>& tensors,
                 std::span<const uint8_t> data) {
    std::vector<std::pair<const SafetensorsEntry*, const std::string*>> order;
    for (const auto& [name, entry] : tensors) order.emplace_back(&entry, &name);
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
        return std::pair(a.first->data, a.first->bytes) < std::pair(b.first->data, b.first->bytes);
    });
    const uint8_t* end = data.data();
    for (const auto& [entry, name] : order) {
        check(entry->data == end, Exit::data, path, ": tensor \"", clipped(*name), "\" begins at byte ",
              entry->data - data.data(), " of the data, but the one before it ends at ", end - data.data());
        end += entry->bytes;
    }
    check(end == data.data() + data.size(), Exit::data, path, ": the tensors end at byte ", end - data.data(),
          " of ", data.size(), " bytes of data; the rest belongs to none");
}

/// The header, padded with spaces so that the data are aligned.
std::string header_of(std::span<const SafetensorsInput* const> tensors,
                      const std::map<std::string, std::string>& metadata) {
    Json header = Json::object();
    if (!metadata.empty()) header["__metadata__"] = metadata;
    size_t offset = 0;
    for (const SafetensorsInput* tensor : tensors) {
        require(tensor->name != "__metadata__" && !header.contains(tensor->name), "a safetensors file with ",
                tensor->name, " twice");
        require(element_size(tensor->dtype) > 0, "no safetensors dtype ", tensor->dtype);
        const size_t end = offset + byte_count(tensor->name, tensor->shape, element_size(tensor->dtype));
        header[tensor->name] = {
            {"dtype", tensor->dtype}, {"shape", tensor->shape}, {"data_offsets", {offset, end}}};
        offset = end;
    }
    std::string text = header.dump();
    text.resize(
        (kLengthBytes + text.size() + kDataAlignment - 1) / kDataAlignment * kDataAlignment - kLengthBytes,
        ' ');
    return text;
}

}  // namespace

std::string shape_text(std::span<const int64_t> shape) {
    std::string text = "(";
    for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
    return text + ")";
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
    const Json header = parse_header(file_);
    const size_t start = kLengthBytes + header_text(file_).size();
    const std::span<const uint8_t> data(file_.data() + start, file_.size() - start);
    for (const auto& [name, value] : header.items()) {
        if (name == "__metadata__")
            metadata_ = parse_metadata(path, value);
        else
            tensors_[name] = parse_entry(path + ": tensor \"" + clipped(name) + "\"", value, data);
    }
    check_cover(path, tensors_, data);
}

const SafetensorsEntry& SafetensorsFile::at(const std::string& name) const {
    const auto found = tensors_.find(name);
    check(found != tensors_.end(), Exit::data, path(), ": no tensor \"", clipped(name), "\"");
    return found->second;
}

FileSummary write_safetensors(const std::string& path, std::span<const SafetensorsInput> tensors,
                              const std::map<std::string, std::string>& metadata) {
    std::vector<const SafetensorsInput*> order;
    for (const SafetensorsInput& tensor : tensors) order.push_back(&tensor);
    // The format's library refuses holes between tensors, so alignment comes from their order.
    std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
        return element_size(a->dtype) > element_size(b->dtype);
    });
    const std::string header = header_of(order, metadata);
    const uint64_t length = header.size();
    AtomicFile file(path);
    file.write(&length, sizeof length);
    file.write(header);
    for (const SafetensorsInput* tensor : order)
        file.write(tensor->data, byte_count(tensor->name, tensor->shape, element_size(tensor->dtype)));
    return file.commit();
}

}  // namespace q2
