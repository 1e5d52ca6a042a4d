// Fields: strict reading, messages that name the key and the right one, overrides, and what follows from
// them.
#include "base/json_fields.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace q2 {
namespace {

using nlohmann::json;

struct Sample {
    int64_t steps = 10;
    uint64_t seed = 0;
    double rate = 0.5;
    bool tied = false;
    std::string kind = "linear";
    std::vector<std::string> files;
    json recipe = "bf16";

    std::vector<Field> fields() {
        return {{"train.steps", &steps, "how many", {1, 100}},
                {"train.seed", &seed, "of draws"},
                {"schedule.rate", &rate, "peak", {.low = 0, .open_low = true}},
                {"model.tied", &tied, "one | matrix"},
                {"schedule.kind", &kind, "course", {}, {"linear", "cosine"}},
                {"data.train", &files, "files"},
                {"precision.recipe", &recipe, "anything"}};
    }
};

/// The exit code and message of what f throws.
template <class F>
std::pair<Exit, std::string> error_of(F f) {
    try {
        f();
    } catch (const Error& e) {
        return {e.code, e.what()};
    }
    return {Exit::ok, "nothing was thrown"};
}

void expect_error(const std::pair<Exit, std::string>& error, Exit code, const std::string& part) {
    EXPECT_EQ(int(error.first), int(code)) << error.second;
    EXPECT_NE(error.second.find(part), std::string::npos) << error.second << "\n  lacks: " << part;
}

std::pair<Exit, std::string> read_error(const std::string& text) {
    Sample s;
    return error_of([&] { read_fields(s.fields(), parse_json(text, "a.json"), "a.json"); });
}

std::pair<Exit, std::string> set_error(const std::string& assignment) {
    Sample s;
    return error_of([&] { apply_override(s.fields(), assignment); });
}

TEST(JsonFields, ReadsEveryTypeAndLeavesTheRest) {
    Sample s;
    read_fields(s.fields(), json::parse(R"({"train": {"steps": 7, "seed": 18446744073709551615},
        "schedule": {"rate": 1}, "model": {"tied": true}, "data": {"train": ["a", "b"]},
        "precision": {"recipe": {"base": "x"}}})"),
                "a.json");
    EXPECT_EQ(s.steps, 7);
    EXPECT_EQ(s.seed, UINT64_MAX);
    EXPECT_EQ(s.rate, 1.0);
    EXPECT_TRUE(s.tied);
    EXPECT_EQ(s.kind, "linear");
    EXPECT_EQ(s.files, (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(s.recipe["base"], "x");
}

TEST(JsonFields, UnknownKeysNameTheNearest) {
    expect_error(read_error(R"({"train": {"setps": 7}})"), Exit::config,
                 "a.json: train.setps: no such key; did you mean train.steps?");
    expect_error(read_error(R"({"trian": {"steps": 7}})"), Exit::config, "did you mean train?");
    expect_error(read_error(R"({"steps": 7})"), Exit::config, "did you mean train.steps?");
    expect_error(read_error(R"({"model": {"steps": 7}})"), Exit::config, "did you mean train.steps?");
    expect_error(read_error(R"({"train": {"zzzzzzzzzzzzzzzzzzzz": 7}})"), Exit::config,
                 "known here: train.steps, train.seed");
    expect_error(read_error("{\"" + std::string(100000, 'x') + "\": 1}"), Exit::config,
                 "xxx...: no such key");
    expect_error(read_error(R"({"train.steps": 7})"), Exit::config, "train.steps: write nested objects");
}

TEST(JsonFields, WrongTypesAndRangesAreRefused) {
    expect_error(read_error(R"({"train": {"steps": "7"}})"), Exit::config,
                 "train.steps = \"7\": needs type integer");
    expect_error(read_error(R"({"train": {"steps": 7.0}})"), Exit::config, "needs type integer");
    expect_error(read_error(R"({"train": {"steps": 18446744073709551615}})"), Exit::config,
                 "train.steps = 18446744073709551615: must be 1 to 100");
    expect_error(read_error(R"({"train": {"steps": 0}})"), Exit::config, "train.steps = 0: must be 1 to 100");
    expect_error(read_error(R"({"train": {"steps": 101}})"), Exit::config, "must be 1 to 100");
    expect_error(read_error(R"({"train": {"steps": null}})"), Exit::config, "needs type integer");
    expect_error(read_error(R"({"train": {"seed": -1}})"), Exit::config, "needs type integer");
    expect_error(read_error(R"({"schedule": {"rate": 0}})"), Exit::config, "must be above 0");
    expect_error(read_error(R"({"model": {"tied": 1}})"), Exit::config, "needs type true or false");
    expect_error(read_error(R"({"schedule": {"kind": "wsd"}})"), Exit::config,
                 "schedule.kind = \"wsd\": must be one of linear, cosine");
    expect_error(read_error(R"({"data": {"train": ["a", 3]}})"), Exit::config, "needs type list of strings");
    expect_error(read_error(R"({"train": 3})"), Exit::config, "train = 3: an object of settings is needed");
    expect_error(read_error("[1]"), Exit::config, "an object of settings is needed");
}

TEST(JsonFields, AFailedReadLeavesTheMember) {
    Sample s;
    EXPECT_THROW(apply_override(s.fields(), "data.train=[\"a\", 3]"), Error);
    EXPECT_THROW(apply_override(s.fields(), "train.steps=1000"), Error);
    EXPECT_TRUE(s.files.empty());
    EXPECT_EQ(s.steps, 10);
}

TEST(JsonFields, HostileJsonIsRefused) {
    auto parse_error = [](const std::string& text) { return error_of([&] { parse_json(text, "a.json"); }); };
    expect_error(parse_error("{\n\"a\": 1,\n}"), Exit::data, "a.json: not valid JSON: parse error at line 3");
    expect_error(parse_error("// why\n{}"), Exit::data, "line 1");
    expect_error(parse_error(""), Exit::data, "not valid JSON");
    expect_error(parse_error("{} {}"), Exit::data, "not valid JSON");
    expect_error(parse_error("{\"a\": 1e999}"), Exit::data, "a number beyond 1.8e308");
    expect_error(parse_error("{\"a\": NaN}"), Exit::data, "not valid JSON");
    expect_error(parse_error("{\"a\": \"\xff\"}"), Exit::data, "not valid JSON");
    expect_error(parse_error(R"({"a": {"b": 1, "c": 2, "b": 3}})"), Exit::data, "key \"b\" is given twice");
    expect_error(parse_error(R"({"a": {"b": 1}, "c": {"b": 1}})"), Exit::ok, "nothing");
    expect_error(parse_error(std::string(1000000, '[')), Exit::data, "nested deeper");
}

TEST(JsonFields, FilesThatCannotBeRead) {
    auto file_error = [](const std::string& path) { return error_of([&] { read_json_file(path); }); };
    expect_error(file_error("no/such/file.json"), Exit::data, "no/such/file.json: cannot be opened");
    expect_error(file_error(std::filesystem::temp_directory_path()), Exit::data,
                 "is a folder, not a regular file");
    expect_error(file_error("/dev/zero"), Exit::data, "not a regular file (a pipe, a device or a socket)");
}

TEST(JsonFields, OverridesReadJsonOrStrings) {
    Sample s;
    for (const char* assignment :
         {"train.steps=12", "schedule.kind=cosine", "schedule.rate=1e-3", "model.tied=true",
          "data.train=x.bin", "precision.recipe={\"base\": \"quartet2\"}", "train={\"seed\": 3}"})
        apply_override(s.fields(), assignment);
    EXPECT_EQ(s.steps, 12);
    EXPECT_EQ(s.kind, "cosine");
    EXPECT_EQ(s.rate, 1e-3);
    EXPECT_TRUE(s.tied);
    EXPECT_EQ(s.files, std::vector<std::string>{"x.bin"});
    EXPECT_EQ(s.recipe, (json{{"base", "quartet2"}}));
    EXPECT_EQ(s.seed, 3u);
    apply_override(s.fields(), "precision.recipe=a=b");
    EXPECT_EQ(s.recipe, "a=b");
}

TEST(JsonFields, WrongOverridesAreRefused) {
    expect_error(set_error("train.steps"), Exit::usage, "--set train.steps: write key=value");
    expect_error(set_error("=3"), Exit::usage, "write key=value");
    expect_error(set_error("train.steps=many"), Exit::config, "needs type integer");
    expect_error(set_error("train.step=3"), Exit::config, "did you mean train.steps?");
    expect_error(set_error("train..steps=3"), Exit::config, "no such key");
    expect_error(set_error("train.=3"), Exit::config, "no such key");
    expect_error(set_error("data.train=\xff"), Exit::usage, "not UTF-8");
    expect_error(set_error("train={\"seed\": 1, \"seed\": 2}"), Exit::data, "given twice");
    std::string deep = "precision.recipe";
    for (int i = 0; i < 20000; ++i) deep += ".a";
    expect_error(set_error(deep + "=1"), Exit::config, "nested deeper");
}

TEST(JsonFields, DumpReadsBackAndKeepsOrder) {
    Sample s, t;
    s.steps = 33;
    s.seed = UINT64_MAX;
    s.rate = 0.1;
    s.files = {"a"};
    const nlohmann::ordered_json dumped = dump_fields(s.fields());
    EXPECT_EQ(dumped.begin().key(), "train");
    EXPECT_EQ(dumped["train"].dump(), R"({"steps":33,"seed":18446744073709551615})");
    read_fields(t.fields(), parse_json(dumped.dump(), "dump"), "dump");
    EXPECT_EQ(dump_fields(t.fields()), dumped);
}

TEST(JsonFields, HelpAndMarkdownNameEveryField) {
    Sample s;
    const std::string help = help_text(s.fields()), markdown = markdown_tables(s.fields());
    for (const Field& field : s.fields()) {
        EXPECT_NE(help.find(field.name), std::string::npos) << field.name;
        EXPECT_NE(markdown.find("| `" + field.name + "` | " + field.type()), std::string::npos) << field.name;
    }
    EXPECT_NE(help.find("train.steps (integer, default 10)\n      how many; 1 to 100\n"), std::string::npos)
        << help;
    EXPECT_NE(markdown.find("one \\| matrix"), std::string::npos) << markdown;
}

TEST(JsonFields, RangesRead) {
    EXPECT_EQ((NumberRange{}.text()), "");
    EXPECT_EQ((NumberRange{.low = 0}.text()), "at least 0");
    EXPECT_EQ((NumberRange{.high = 3}.text()), "at most 3");
    EXPECT_EQ((NumberRange{.low = 0, .high = 1, .open_high = true}.text()), "0 to below 1");
    EXPECT_FALSE((NumberRange{.low = 0, .high = 1, .open_high = true}.holds(1)));
    EXPECT_FALSE((NumberRange{.low = 0, .open_low = true}.holds(0)));
}

TEST(JsonFields, NearestName) {
    EXPECT_EQ(nearest_name("quartet", {"bf16", "quartet2", "nvidia"}), "quartet2");
    EXPECT_EQ(nearest_name("kitten", {"sitting", "smitten"}), "smitten");
    EXPECT_EQ(nearest_name("abcdef", {"uvwxyz"}), "");
    EXPECT_EQ(nearest_name("", {}), "");
}

}  // namespace
}  // namespace q2
