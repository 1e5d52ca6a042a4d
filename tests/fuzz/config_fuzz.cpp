// A config file: JSON, settings, recipes, and all checks; what passes must read back as itself. An input that
// begins with "--set " is an override of the default config.
#include "tests/fuzz/fuzz.h"
#include "train/config.h"

namespace {

using namespace q2;

void load(std::string_view text) {
    const Config config = config_from_json(parse_json(text, "input"), "input");
    recipe_plan(config);
    const nlohmann::ordered_json resolved = config_to_json(config);
    const Config again = config_from_json(parse_json(resolved.dump(), "resolved"), "resolved");
    require(config_to_json(again) == resolved, "a resolved config reads back as another");
}

void override_default(std::string_view assignment) {
    Config config;
    config.data.train = config.data.val = {"a"};
    apply_override(fields(config), std::string(assignment));
    validate(config);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text = q2::fuzz::text_of(data, size), option = "--set ";
    q2::fuzz::expect_value_or_error(
        "", [&] { text.starts_with(option) ? override_default(text.substr(option.size())) : load(text); });
    return 0;
}
