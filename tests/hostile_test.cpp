// Malformed inputs and the whole message that each must give; `make sanitize` runs them too.
#include <gtest/gtest.h>

#include "base/safetensors.h"
#include "tests/support/temp_folder.h"
#include "train/config.h"
#include "train/manifest.h"

namespace q2 {
namespace {

struct Case {
    std::string input, message;
};

/// read(input) must throw an Error with exactly the message.
template <class F>
void expect_messages(const std::vector<Case>& cases, F read) {
    for (const Case& c : cases) {
        try {
            read(c.input);
            ADD_FAILURE() << "accepted: " << c.input.substr(0, 100);
        } catch (const Error& e) {
            EXPECT_EQ(c.message, e.what());
        }
    }
}

TEST(Hostile, Json) {
    expect_messages(
        {{"", "in: not valid JSON: there is no text"},
         {" \n", "in: not valid JSON: there is no text"},
         {"{} {}",
          "in: not valid JSON: parse error at line 1, column 4: syntax error while parsing value - "
          "unexpected "
          "'{'; expected end of input"},
         {"{\"a\": NaN}",
          "in: not valid JSON: parse error at line 1, column 7: syntax error while parsing value - invalid "
          "literal; last read: '\"a\": N'"},
         {"{\"a\": 1e999}", "in: number overflow parsing '1e999': a number beyond 1.8e308"},
         {"{\"a\": 1, \"a\": 2}", "in: the key \"a\" is given twice in one object; keep one"},
         {std::string(100000, '['), "in: nested deeper than 32 levels"}},
        [](const std::string& text) { parse_json(text, "in"); });
}

TEST(Hostile, Config) {
    expect_messages(
        {{"[]", "in: []: an object of settings is needed"},
         {R"({"model": 3})", "in: model = 3: an object of settings is needed"},
         {R"({"model": {"hedas": 3}})", "in: model.hedas: no such key; did you mean model.heads?"},
         {R"({"model.heads": 3})", "in: model.heads: write nested objects in place of dots"},
         {R"({"model": {"layers": 0}})", "in: model.layers = 0: must be 1 to 1024"},
         {R"({"model": {"layers": 1e30}})", "in: model.layers = 1e+30: must be 1 to 1024"},
         {R"({"model": {"layers": 18446744073709551615}})",
          "in: model.layers = 18446744073709551615: must be 1 to 1024"},
         {R"({"model": {"layers": 2.0}})",
          "in: model.layers = 2.0: needs type integer, written without point and exponent"},
         {R"({"model": {"layers": "2"}})", "in: model.layers = \"2\": needs type integer"},
         {R"({"model": {"layers": null}})", "in: model.layers = null: needs type integer"},
         {R"({"model": {"tied": 1}})", "in: model.tied = 1: needs type true or false"},
         {R"({"model": {"residual": "f64"}})",
          "in: model.residual = \"f64\": must be one of float32, bfloat16"},
         {R"({"train": {"seed": -1}})", "in: train.seed = -1: must be at least 0"},
         {R"({"train": {"seed": 99999999999999999999}})",
          "in: train.seed = 1e+20: needs type integer of at most 64 bits"},
         {R"({"data": {"tokenizer": "a\u0000b"}})",
          "in: data.tokenizer = \"a\\u0000b\": needs type string without NUL"},
         {R"({"data": {"train": ["a", 3]}})", "in: data.train = [\"a\",3]: needs type list of strings"},
         {R"({"optimizer": {"eps": 1e-300}})", "in: optimizer.eps = 1e-300: must be 1e-30 to 1e+30"}},
        [](const std::string& text) { config_from_json(parse_json(text, "in"), "in"); });
}

TEST(Hostile, Manifest) {
    const auto with = [](const std::string& key, const nlohmann::json& value) {
        nlohmann::json json = nlohmann::json::parse(manifest_text({{.step = 1}, {}}));
        json.erase("xxh64");
        json[key] = value;
        json["xxh64"] = json_checksum(json);
        return json.dump();
    };
    const std::string zeros(16, '0');
    expect_messages(
        {{"[1]", "in: [1] is not an object"},
         {"{}", "in: no \"xxh64\""},
         {R"({"xxh64": 3})", "in: \"xxh64\" = 3 is not 16 hexadecimal digits"},
         {R"({"xxh64": ")" + zeros + "\"}", "in: its own checksum is wrong"},
         {with("format", 9), "in: format version 9 is not supported (1 is)"},
         {with("step", -1), "in: \"step\" = -1 is not a non-negative integer of 64 bits"},
         {with("step", UINT64_MAX),
          "in: \"step\" = 18446744073709551615 is not a non-negative integer of 64 bits"},
         {with("seed", 1.5), "in: \"seed\" = 1.5 is not a non-negative integer of 64 bits"},
         {with("config", 3), "in: \"config\" = 3 is not an object"},
         {with("files", nullptr), "in: \"files\" = null is not an object"},
         {with("files", {{"../a", {{"size", 1}, {"xxh64", zeros}}}}), "in: \"../a\" is not a file's name"},
         {with("files", {{"..", {{"size", 1}, {"xxh64", zeros}}}}), "in: \"..\" is not a file's name"},
         {with("files", {{"a", {{"size", "1"}, {"xxh64", zeros}}}}),
          "in: file \"a\": \"size\" = \"1\" is not a non-negative integer of 64 bits"},
         {with("files", {{"a", {{"size", 1}}}}), "in: file \"a\": no \"xxh64\""}},
        [](const std::string& text) { parse_manifest(text, "in"); });
}

TEST(Hostile, Safetensors) {
    const test::TempFolder folder;
    const std::string path = folder / "a";
    const auto file = [](const std::string& header, size_t data) {
        const uint64_t size = header.size();
        return std::string(reinterpret_cast<const char*>(&size), 8) + header + std::string(data, 'x');
    };
    const auto two = [&](const std::string& first, const std::string& second, size_t data) {
        const std::string head = "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":";
        return file("{\"a" + head + first + "},\"b" + head + second + "}}", data);
    };
    expect_messages({{"abc", path + ": 3 bytes are too few for a safetensors file"},
                     {file("[]", 0), path + ": the header is not a JSON object"},
                     {two("[0,4]", "[2,6]", 6),
                      path + ": tensor \"b\" begins at byte 2 of the data, but the one before it ends at 4"},
                     {two("[0,4]", "[5,9]", 9),
                      path + ": tensor \"b\" begins at byte 5 of the data, but the one before it ends at 4"},
                     {two("[0,4]", "[4,8]", 9),
                      path + ": the tensors end at byte 8 of 9 bytes of data; the rest belongs to none"},
                     {two("[0,4]", "[4,8]", 7),
                      path + ": tensor \"b\" ends at byte 8 of 7 bytes of data; the file is truncated"}},
                    [&](const std::string& bytes) {
                        test::write_bytes(path, bytes);
                        SafetensorsFile{path};
                    });
}

}  // namespace
}  // namespace q2
