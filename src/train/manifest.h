// A checkpoint's manifest: what its files are, and what a resume must know. JSON with a checksum of its own.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "train/checkpoint.h"

namespace q2 {

constexpr size_t kMaxManifestBytes = size_t(64) << 20;

struct Manifest {
    CheckpointMeta meta;
    std::map<std::string, FileSummary> files;  ///< by name, inside the checkpoint's folder
};

std::string manifest_text(const Manifest& manifest);

/// Trusts nothing: checksum, format, types, names that would leave the folder. Throws Exit::data; `path`
/// begins the message.
Manifest parse_manifest(std::string_view text, const std::string& path);

/// XXH64 of a JSON text of sorted keys, as 16 hexadecimal digits: the manifest's own checksum is that of the
/// manifest without it.
std::string json_checksum(const nlohmann::json& json);
std::string checksum_text(uint64_t checksum);

}  // namespace q2
