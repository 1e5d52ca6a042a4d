// JSON from strangers: configs, overrides, manifests and safetensors headers are all read here, with bounds
// on size, depth and number of values, so that a hostile text costs a message and no more.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace q2 {

struct JsonLimits {
    size_t depth = 32;          ///< of nesting; nlohmann's dump recurses
    size_t values = 1'000'000;  ///< keys, values and brackets; a byte of text can cost 50 of memory
};

/// JSON text without comments. A syntax error, a key given twice in one object, bytes that are not UTF-8 and
/// what passes the limits throw Exit::data; `origin` begins the message.
nlohmann::json parse_json(std::string_view text, const std::string& origin, const JsonLimits& = {});

/// A regular file of at most 16 MiB, parsed; its path is the origin.
nlohmann::json read_json_file(const std::string& path);

bool is_utf8(const std::string& text);

/// Text as a message shows it: at most 80 bytes, without control characters.
std::string clipped(std::string_view text);
/// A JSON value as a message shows it.
std::string shown(const nlohmann::json& value);

}  // namespace q2
