#include "train/manifest.h"

#include <charconv>

#include "base/check.h"
#include "base/strict_json.h"

namespace q2 {
namespace {

using Json = nlohmann::json;

constexpr int64_t kFormatVersion = 1;

const Json& member(const Json& object, const char* key, const std::string& where) {
    check(object.is_object(), Exit::data, where, ": ", shown(object), " is not an object");
    const auto found = object.find(key);
    check(found != object.end(), Exit::data, where, ": no \"", key, "\"");
    return *found;
}

/// A member that is a non-negative integer of type T.
template <class T>
T whole(const Json& object, const char* key, const std::string& where) {
    const Json& value = member(object, key, where);
    // A negative number has another type here; of the others only int64 can be too narrow.
    check(value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t(std::numeric_limits<T>::max()),
          Exit::data, where, ": \"", key, "\" = ", shown(value), " is not a non-negative integer of 64 bits");
    return value.get<T>();
}

const Json& object_of(const Json& object, const char* key, const std::string& where) {
    const Json& value = member(object, key, where);
    check(value.is_object(), Exit::data, where, ": \"", key, "\" = ", shown(value), " is not an object");
    return value;
}

uint64_t checksum_of(const Json& object, const std::string& where) {
    const Json& value = member(object, "xxh64", where);
    const std::string text = value.is_string() ? value.get<std::string>() : "";
    uint64_t checksum = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, checksum, 16);
    check(text.size() == 16 && error == std::errc() && stop == end, Exit::data, where,
          ": \"xxh64\" = ", shown(value), " is not 16 hexadecimal digits");
    return checksum;
}

std::map<std::string, FileSummary> files_of(const Json& manifest, const std::string& path) {
    std::map<std::string, FileSummary> files;
    for (const auto& [name, value] : object_of(manifest, "files", path).items()) {
        const bool inside = !name.empty() && name != "." && name != ".." &&
                            name.find_first_of(std::string("/\0", 2)) == std::string::npos;
        check(inside, Exit::data, path, ": \"", clipped(name), "\" is not a file's name");
        const std::string where = path + ": file \"" + clipped(name) + "\"";
        files[name] = {whole<uint64_t>(value, "size", where), checksum_of(value, where)};
    }
    return files;
}

}  // namespace

std::string checksum_text(uint64_t checksum) {
    std::string text(16, '0');
    for (int i = 0; i < 16; ++i) text[size_t(i)] = "0123456789abcdef"[checksum >> (60 - 4 * i) & 15];
    return text;
}

std::string json_checksum(const Json& json) {
    const std::string text = json.dump();
    Checksum checksum;
    checksum.update(text.data(), text.size());
    return checksum_text(checksum.value());
}

std::string manifest_text(const Manifest& manifest) {
    Json files = Json::object();
    for (const auto& [name, summary] : manifest.files)
        files[name] = {{"size", summary.size}, {"xxh64", checksum_text(summary.checksum)}};
    const CheckpointMeta& meta = manifest.meta;
    Json json = {{"format", kFormatVersion},
                 {"step", meta.step},
                 {"seed", meta.seed},
                 {"world_size", meta.world_size},
                 {"data_position", meta.data_position},
                 {"config", meta.config},
                 {"extra", meta.extra},
                 {"files", files}};
    json["xxh64"] = json_checksum(json);
    return json.dump(1) + "\n";
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
    Json json = parse_json(text, path);
    const std::string claimed = checksum_text(checksum_of(json, path));
    json.erase("xxh64");
    check(json_checksum(json) == claimed, Exit::data, path, ": its own checksum is wrong");
    const int64_t format = whole<int64_t>(json, "format", path);
    check(format == kFormatVersion, Exit::data, path, ": format version ", format, " is not supported (",
          kFormatVersion, " is)");
    return {{.step = whole<int64_t>(json, "step", path),
             .seed = whole<uint64_t>(json, "seed", path),
             .world_size = whole<int64_t>(json, "world_size", path),
             .data_position = whole<int64_t>(json, "data_position", path),
             .config = object_of(json, "config", path),
             .extra = object_of(json, "extra", path)},
            files_of(json, path)};
}

}  // namespace q2
