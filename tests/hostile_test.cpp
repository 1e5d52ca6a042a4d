// Malformed inputs and the whole message that each must give; `make sanitize` runs them too.
#include <gtest/gtest.h>

#include "linear/recipes.h"
#include "tests/support/hostile.h"
#include "train/config.h"
#include "train/manifest.h"

namespace q2 {
namespace {

using test::expect_messages;

std::string many(const std::string& text, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += text;
    return out;
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
         {std::string(100000, '['), "in: nested deeper than 32 levels"},
         {"\xef\xbb{}",
          "in: not valid JSON: parse error at line 1, column 3: syntax error while parsing value - invalid "
          "BOM; must be 0xEF 0xBB 0xBF if given; last read: '\xEF\xBB{'"},
         {std::string("{}\0", 3), "in: not valid JSON: byte 2 is NUL; this is no text"},
         {"{\"a\": \"\xff\"}",
          "in: not valid JSON: parse error at line 1, column 8: syntax error while parsing value - invalid "
          "string: ill-formed UTF-8 byte; last read: '\"\xFF'"},
         {"{\"a\": \"\\ud800\"}",
          "in: not valid JSON: parse error at line 1, column 14: syntax error while parsing value - invalid "
          "string: surrogate U+D800..U+DBFF must be followed by U+DC00..U+DFFF; last read: '\"\\ud800\"'"},
         {"{\"a\": 1,}",
          "in: not valid JSON: parse error at line 1, column 9: syntax error while parsing object key - "
          "unexpected '}'; expected string literal"},
         {"{} // text",
          "in: not valid JSON: parse error at line 1, column 4: syntax error while parsing value - invalid "
          "literal; last read: '{} /'; expected end of input"},
         {"{\"a\": \"",
          "in: not valid JSON: parse error at line 1, column 8: syntax error while parsing value - invalid "
          "string: missing closing quote; last read: '\"'"},
         {concat("[", many("0,", 1'000'000), "0]"), "in: more than 1000000 values; this is no such file"}},
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

TEST(Hostile, Set) {
    expect_messages(
        {{"model.heads", "--set model.heads: write key=value"},
         {"=3", "--set =3: write key=value"},
         {"model.hedas=3", "--set model.hedas=3: model.hedas: no such key; did you mean model.heads?"},
         {"heads=3", "--set heads=3: heads: no such key; did you mean model.heads?"},
         {"colour=3",
          "--set colour=3: colour: no such key; known here: model, data, precision, optimizer, schedule, "
          "train, checkpoint, log, parallel"},
         {"model.heads=many", "--set model.heads=many: model.heads = \"many\": needs type integer"},
         {"model.heads=", "--set model.heads=: model.heads = \"\": needs type integer"},
         {"model=3", "--set model=3: model = 3: an object of settings is needed"},
         {"data.train=[\"a",
          "--set data.train=[\"a: not valid JSON: parse error at line 1, column 4: syntax error while "
          "parsing value - invalid string: missing closing quote; last read: '\"a'"},
         {"data.val=\xff", "--set data.val=\xFF: the value is not UTF-8 text"},
         {"model.\xff=1",
          "--set model.\xFF=1: model.\xFF: no such key; known here: model.layers, model.width, model.heads, "
          "model.kv_heads, model.head_size, model.mlp, model.vocab, model.tied, model.rope_theta, "
          "model.norm_eps, model.residual, model.activations"},
         {"model..heads=1",
          "--set model..heads=1: model.: no such key; known here: model.layers, model.width, model.heads, "
          "model.kv_heads, model.head_size, model.mlp, model.vocab, model.tied, model.rope_theta, "
          "model.norm_eps, model.residual, model.activations"},
         {"train.lr={\"a\":",
          "--set train.lr={\"a\":: not valid JSON: parse error at line 1, column 6: syntax error while "
          "parsing value - unexpected end of input; expected '[', '{', or a literal"},
         {many("a.", 40) + "b=1",
          "--set a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a...: nested "
          "deeper than 32 levels"}},
        [](const std::string& assignment) {
            Config config;
            apply_override(fields(config), assignment);
        });
}

TEST(Hostile, Recipe) {
    expect_messages(
        {{"3", "in = 3: a recipe is a name or an object"},
         {R"("quartet")",
          "in = \"quartet\": no such recipe; did you mean quartet2? built in: bf16, quartet2, "
          "quartet2_onepass, quartet2_plus, nvidia, four_over_six, tetrajet_v2"},
         {R"({"base": "quartet3"})",
          "in.base = \"quartet3\": no such recipe; did you mean quartet2? built in: bf16, quartet2, "
          "quartet2_onepass, quartet2_plus, nvidia, four_over_six, tetrajet_v2"},
         {R"({"base": "quartet2", "dgrad": {"c": {}}})", "in: dgrad.c: no such key; did you mean dgrad.a?"},
         {R"({"base": "quartet2", "dgrad": {"a": {"round": "up"}}})",
          "in: dgrad.a.round = \"up\": must be one of keep, nearest, stochastic, ms_eden"},
         {R"({"base": "quartet2", "dgrad": {"a": {"rule": "mse"}}})",
          "in.dgrad.a.rule = \"mse\": rounding ms_eden does not use it; leave it out"},
         {R"({"base": "quartet2", "dgrad": {"rotation": 48}})",
          "in.dgrad.rotation = 48: must be 0, 16, 32, 64 or 128"},
         {R"({"base": "quartet2", "dgrad": {"a": {"correction": 64}}})",
          "in.dgrad.a.correction = 64: must be 16 or 128"},
         {R"({"base": "quartet2", "dgrad": {"a": {"range": "post_hoc", "correction": 128}}})",
          "in.dgrad.a.range = \"post_hoc\": needs \"correction\": 16"},
         {R"({"base": "quartet2", "fprop": {"rotation": 128}})",
          "in.fprop.rotation = 128: must be 0 where dgrad.b or wgrad.b is \"from\": \"quantised\""},
         {R"({"base": "quartet2", "fprop": {"a": {"from": "quantised"}}})",
          "in.fprop.a.from = \"quantised\": only dgrad.b (W) and wgrad.b (X) have a quantised copy"},
         {R"({"base": "quartet2", "fprop": {"a": {"round": "stochastic", "rule": "search"}}})",
          "in.fprop.a.rule = \"search\": stochastic rounding takes six, mse, mae or absmax"},
         {R"({"base": "quartet2", "dgrad": {"rotation": 0, "rounds": 2}})",
          "in.dgrad.rotation = 0: does not use rounds and signs; leave them out"},
         {R"({"base": "quartet2", "name": "nvidia"})",
          "in.name = \"nvidia\": is a built-in recipe and this one differs from it; choose another name"}},
        [](const std::string& text) { recipe_from_json(parse_json(text, "in"), "in"); });
}

/// What only several settings together break.
TEST(Hostile, Combination) {
    expect_messages(
        {{R"({"data": {"train": []}})", "data.train is empty: name a token file or a glob"},
         {R"({"data": {"val": []}})",
          "data.val is empty: name a token file or a glob, or set train.eval_every to 0"},
         {R"({"model": {"heads": 7}})",
          "model.heads = 7: must divide model.width = 640 (5 and 8 are near), or set model.head_size"},
         {R"({"model": {"heads": 10, "kv_heads": 3}})", "model.kv_heads = 3: must divide model.heads = 10"},
         {R"({"model": {"head_size": 65}})",
          "model.head_size = 65: must be even, rotary embedding turns pairs; 64 and 66 are near"},
         {R"({"model": {"width": 640, "mlp": 1000}})",
          "model.mlp = 1000: recipe quartet2 (blocks, rotation and correction groups) needs a multiple of "
          "64; 960 and 1024 are near"},
         {R"({"data": {"tokenizer": "bytes"}})",
          "model.vocab = 32000: bytes, data.tokenizer, are 256 tokens; set model.vocab to 256 or "
          "data.tokenizer to none"},
         {R"({"train": {"micro_batch": 1048576}, "data": {"sequence": 4096}})",
          "train.micro_batch = 1048576: with data.sequence = 4096 at most 16384"},
         {R"({"parallel": {"gpus": 3}})",
          "train.accumulate = 8: parallel.gpus needs a multiple of 3; 6 and 9 are near"},
         {R"({"schedule": {"warmup": 1.5}})",
          "schedule.warmup = 1.5: a fraction below 1 or a whole number of steps"},
         {R"({"schedule": {"warmup": 9}, "train": {"steps": 8}})",
          "schedule.warmup = 9: longer than the run, train.steps = 8"},
         {R"({"precision": {"keep_bf16": {"first": 99}}})",
          "precision.keep_bf16.first = 99: the model has model.layers = 6 blocks"},
         {R"({"precision": {"keep_bf16": {"names": ["lm_head"]}}})",
          "precision.keep_bf16.names: \"lm_head\": must be qkv_proj, o_proj, gate_up_proj or down_proj, or "
          "one block's, as layers.0.o_proj (of 6 blocks)"},
         {R"({"precision": {"switch": {}}})", "precision.switch: must be a list of {\"at\", \"recipe\"}"},
         {R"({"precision": {"switch": [{"at": 0.5}]}})", "precision.switch[0]: needs both at and recipe"},
         {R"({"precision": {"switch": [{"at": 0.5, "recipe": "bf16"}, {"at": 0.5, "recipe": "bf16"}]}})",
          "precision.switch[1].at: step 400 must come after step 400, where the recipe before it begins"}},
        [](const std::string& text) {
            nlohmann::json json = {{"data", {{"train", "a"}, {"val", "b"}}}};
            json.merge_patch(parse_json(text, "in"));
            config_from_json(json, "in");
        });
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

}  // namespace
}  // namespace q2
