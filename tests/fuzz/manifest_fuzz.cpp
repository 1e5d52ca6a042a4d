// A checkpoint's manifest as it is, and with its own checksum put right, so that what lies behind it is
// reached. What passes must be written as what it was read from.
#include "base/strict_json.h"
#include "tests/fuzz/fuzz.h"
#include "train/manifest.h"

namespace {

using namespace q2;

void parse(std::string_view text) {
    const Manifest manifest = parse_manifest(text, "input");
    for (const auto& [name, summary] : manifest.files)
        require(name.find('/') == name.npos && name != "..", "a file outside of the checkpoint");
    const std::string written = manifest_text(manifest);
    require(manifest_text(parse_manifest(written, "written")) == written, "a manifest changes");
}

void parse_signed(std::string_view text) {
    nlohmann::json json = parse_json(text, "input");
    if (!json.is_object()) return;
    json.erase("xxh64");
    json["xxh64"] = json_checksum(json);
    parse(json.dump());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    for (const auto read : {parse, parse_signed})
        q2::fuzz::expect_value_or_error("input", [&] { read(q2::fuzz::text_of(data, size)); });
    return 0;
}
