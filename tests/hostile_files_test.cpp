// Malformed files and the whole message that each must give; `make sanitize` runs them too.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/safetensors.h"
#include "base/strict_json.h"
#include "tests/support/hostile.h"
#include "tests/support/temp_folder.h"
#include "train/checkpoint.h"
#include "train/data_loader.h"
#include "train/metrics.h"
#include "train/tensor_io.h"
#include "train/tokenizer_file.h"

namespace q2::test {
namespace {

TEST(HostileFiles, Safetensors) {
    const TempFolder folder;
    const std::string path = folder / "a";
    const auto file = [](const std::string& header, size_t data) {
        const uint64_t size = header.size();
        return std::string(reinterpret_cast<const char*>(&size), 8) + header + std::string(data, 'x');
    };
    const auto two = [&](const std::string& first, const std::string& second, size_t data) {
        const std::string head = "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":";
        return file("{\"a" + head + first + "},\"b" + head + second + "}}", data);
    };
    expect_messages(
        {{"abc", path + ": 3 bytes are too few for a safetensors file"},
         {file("[]", 0), path + ": the header is not a JSON object"},
         {two("[0,4]", "[2,6]", 6),
          path + ": tensor \"b\" begins at byte 2 of the data, but the one before it ends at 4"},
         {two("[0,4]", "[5,9]", 9),
          path + ": tensor \"b\" begins at byte 5 of the data, but the one before it ends at 4"},
         {two("[0,4]", "[4,8]", 9),
          path + ": the tensors end at byte 8 of 9 bytes of data; the rest belongs to none"},
         {file("", 0), path + ": the header: not valid JSON: there is no text"},
         {std::string(7, 'x') + "\x01", path + ": a header of 105967050055776376 bytes is beyond the limit "
                                               "of 100000000; is this a safetensors file?"},
         {file(R"({"a":3})", 0), path + ": tensor \"a\" is not an object"},
         {file(R"({"a":{"dtype":"F12","shape":[],"data_offsets":[0,4]}})", 4),
          path + ": tensor \"a\" has the unknown dtype \"F12\""},
         {file(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4),
          path + ": tensor \"a\" shape holds -1, not a size"},
         {file(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
          path + ": tensor \"a\": F32 (2) takes 8 bytes, its data_offsets give 4"},
         {file(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4),
          path + ": tensor \"a\": the size of shape (4294967296, 4294967296) overflows"},
         {file(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4),
          path + ": tensor \"a\" begins at 4, after its end 0"},
         {file(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4),
          path + ": tensor \"a\" has 1 data_offsets, not 2"},
         {file(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4), path + ": tensor \"a\" has no \"shape\""},
         {file(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4),
          path + ": tensor \"a\" has an unknown key \"x\""},
         {file(R"({"__metadata__":{"a":1}})", 0), path + ": __metadata__ \"a\" is not a string"},
         {file(R"({"a":{},"a":{}})", 0),
          path + ": the header: the key \"a\" is given twice in one object; keep one"},
         {two("[0,4]", "[4,8]", 7),
          path + ": tensor \"b\" ends at byte 8 of 7 bytes of data; the file is truncated"}},
        [&](const std::string& bytes) {
            write_bytes(path, bytes);
            SafetensorsFile{path};
        });
}

/// A sound file, but not the model's.
TEST(HostileFiles, Weights) {
    const TempFolder folder;
    const std::string path = folder / "a";
    float values[6] = {};
    const auto tensor = [&](const std::string& name, std::vector<int64_t> shape, Dtype dtype = Dtype::f32) {
        return NamedTensor{name, dtype, std::move(shape), values};
    };
    const std::vector<std::pair<NamedTensor, std::string>> cases = {
        {tensor("b", {2, 3}), path + ": no tensor \"b\""},
        {tensor("a", {3, 2}), path + ": tensor \"a\" has shape (2, 3), the model needs (3, 2)"},
        {tensor("a", {2, 3}, Dtype::i32), path + ": tensor \"a\" is F32, needed is I32"}};
    save_tensors(path, std::vector{tensor("a", {2, 3})});
    for (const auto& [wanted, message] : cases)
        expect_messages({{path, message}},
                        [&](const std::string& file) { load_tensors(file, std::vector{wanted}); });
}

TEST(HostileFiles, Tokens) {
    const TempFolder folder;
    const std::string path = folder / "a";
    const auto header = [](std::vector<uint32_t> words, size_t bytes) {
        std::string text(reinterpret_cast<const char*>(words.data()), words.size() * 4);
        text.resize(bytes);
        return text;
    };
    const auto open = [&](std::string format, int64_t vocab) {
        return [=, &path](const std::string& bytes) {
            write_bytes(path, bytes);
            DataLoader({{path}, format, 4, vocab}, SampleOrder::sequential);
        };
    };
    expect_messages(
        {{"", path + ": the file is empty; make it with `quartet2 tokenize`"},
         {"It is a truth universally acknowledged",
          path + ": no token header of llm.c (magic 20240520 or 20240801); for a file without a header set "
                 "data.format to uint16 or uint32, a text goes through `quartet2 tokenize` first"},
         {header({20240520, 2, 0}, 1024), path + ": version 2 of the token format with magic 20240520 is not "
                                                 "supported (1 is); write the file again"},
         {header({20240520, 1, 0}, 1000),
          path + ": 1000 bytes, its header alone takes 1024; the file is truncated"},
         {header({20240520, 1, 9}, 1024 + 16),
          path +
              ": the header announces 9 tokens (modulo 2^32), the file holds 8; it is truncated or damaged"},
         {header({20240520, 1, 8}, 1024 + 17),
          path + ": the header announces 8 tokens (modulo 2^32), the file holds 8 and a part of one; it is "
                 "truncated or damaged"},
         {header({20240520, 1, 4}, 1024 + 8),
          path + ": a window takes data.sequence + 1 = 5 tokens, the longest file has 4; give more data or a "
                 "shorter data.sequence"}},
        open("auto", 256));
    expect_messages(
        {{header({20240520, 1, 8}, 1024 + 16),
          path + ": holds uint16 tokens, too narrow for model.vocab = 65537; tokenise again as uint32"}},
        open("auto", 65537));
    expect_messages(
        {{header({20240520, 1, 8}, 1024 + 16),
          path +
              ": begins with a token header, but data.format says that it has none; set data.format to auto"},
         {"abc", path + ": 3 bytes are not a whole number of uint16 tokens; check data.format"}},
        open("uint16", 256));
    expect_messages({{std::string("\0\0\0\0\1\1\0\0\0\0\0\0", 12),
                      path + ": token 257 at position 2 is not below model.vocab = 256; the file belongs to "
                             "another tokenizer, or data.format is wrong"}},
                    open("uint16", 256));
    expect_messages(
        {{header({0, 0, 0, 0xffffffff}, 24),
          path + ": token 4294967295 at position 3 is not below model.vocab = 256; the file belongs to "
                 "another tokenizer, or data.format is wrong"},
         {"abcdef", path + ": 6 bytes are not a whole number of uint32 tokens; check data.format"}},
        open("uint32", 256));
    expect_messages({{"", "data.format: \"uint8\" is none of auto, uint16, uint32"}}, open("uint8", 256));
    expect_messages({{folder / "none", folder / "none" + ": no such file"},
                     {folder / "*.bin", folder / "*.bin" + ": no file matches this pattern"},
                     {folder.path(), folder.path() + ": is a folder, not a regular file"}},
                    [](const std::string& pattern) {
                        DataLoader({{pattern}, "auto", 4, 256}, SampleOrder::sequential);
                    });
}

/// Somebody cuts the file while a run reads it.
TEST(HostileFiles, TokensCutMeanwhile) {
    const TempFolder folder;
    const std::string path = folder / "a";
    write_bytes(path, std::string(2 * 4096, '\1'));
    const DataLoader data({{path}, "uint16", 4, 65536}, SampleOrder::sequential);
    int32_t inputs[4], targets[4];
    data.fill(1000, 1, inputs, targets);
    ASSERT_EQ(::truncate(path.c_str(), 4000), 0);
    data.fill(100, 1, inputs, targets);
    expect_messages({{"", path + ": ends at byte 8000, but had 8192 bytes when it was opened; somebody has "
                                 "cut it, put the whole file back"}},
                    [&](const std::string&) { data.fill(1000, 1, inputs, targets); });
}

TEST(HostileFiles, Tokenizer) {
    const TempFolder folder;
    const std::string path = folder / "tokenizer.json";
    expect_messages(
        {{"", path + ": not valid JSON: there is no text"},
         {"a b", path + ": not valid JSON: parse error at line 1, column 1: syntax error while parsing value "
                        "- invalid literal; last read: 'a'"},
         {"[]", path + ": no \"model\"; data.tokenizer needs a Hugging Face tokenizer.json"},
         {R"({"model": 3})", path + ": no \"vocab\"; data.tokenizer needs a Hugging Face tokenizer.json"},
         {R"({"model": {"vocab": 3}})", path + ": \"vocab\" = 3 is not a table of tokens"},
         {R"({"model": {"vocab": {}}})", path + ": \"vocab\" = {} is not a table of tokens"},
         {R"({"model": {"vocab": {"a": 0, "b": 256}}})",
          path + ": token \"b\" has the id 256, not 0 to 255; raise model.vocab or take the data's own "
                 "tokenizer"},
         {R"({"model": {"vocab": {"a": -1}}})", path + ": token \"a\" has the id -1, not 0 to 255; raise "
                                                       "model.vocab or take the data's own tokenizer"},
         {R"({"model": {"vocab": {"a": "0"}}})", path + ": token \"a\" has the id \"0\", not an integer"},
         {R"({"model": {"vocab": {"a": 0, "a": 1}}})",
          path + ": the key \"a\" is given twice in one object; keep one"},
         {R"({"model": {"vocab": {"a": 0}, "merges": {}}})", path + ": \"merges\" = {} is not a list"},
         {R"({"model": {"vocab": {"a": 0}, "merges": ["aa"]}})",
          path + ": merge 0, \"aa\", is not a pair of tokens; the file is damaged"},
         {R"({"model": {"vocab": {"a": 0}, "merges": [["a"]]}})",
          path + ": merge 0, [\"a\"], is not a pair of tokens; the file is damaged"},
         {R"({"model": {"vocab": {"a": 0}, "merges": ["a b"]}})",
          path + ": merge 0, \"a b\": \"b\" is not in the vocabulary; the file is damaged"},
         {R"({"model": {"vocab": {"a": 0}}, "added_tokens": {}})",
          path + ": \"added_tokens\" = {} is not a list"},
         {R"({"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 1}]})",
          path + ": added token {\"id\":1} needs \"id\" and \"content\""},
         {R"({"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 999, "content": "<s>"}]})",
          path + ": token \"<s>\" has the id 999, not 0 to 255; raise model.vocab or take the data's own "
                 "tokenizer"}},
        [&](const std::string& text) {
            write_bytes(path, text);
            check_tokenizer_file(path, 256);
        });
    for (const char* good :
         {R"({"model": {"vocab": {"a": 0, "b": 1, "ab": 255}, "merges": ["a b", ["a", "b"]]}})",
          R"({"model": {"type": "Unigram", "vocab": [["<unk>", 0.0], ["a", -1.5]]}, "added_tokens": []})"}) {
        write_bytes(path, good);
        EXPECT_NO_THROW(check_tokenizer_file(path, 256)) << good;
    }
}

TEST(HostileFiles, Metrics) {
    const TempFolder folder;
    const std::string path = folder / "metrics.jsonl";
    expect_messages(
        {{"{}\n", path + ":1: not a JSON object with an integer \"step\"; remove the damaged line"},
         {"{\"step\": \"1\"}\n",
          path + ":1: not a JSON object with an integer \"step\"; remove the damaged line"},
         {"{\"step\": 0}\n\n{",
          path + ":2: not a JSON object with an integer \"step\"; remove the damaged line"},
         {"{\"ste\n{\"step\": 1}\n",
          path + ":1: not a JSON object with an integer \"step\"; remove the damaged line"}},
        [&](const std::string& text) {
            write_bytes(path, text);
            read_metrics(path);
        });
}

/// Neither may wait for the pipe's other end.
TEST(HostileFiles, WhatIsNoFile) {
    const TempFolder folder;
    ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
    write_bytes(folder / "closed", "{}");
    const auto read = [](const std::string& path) { read_json_file(path); };
    expect_messages(
        {{folder / "none", folder / "none" + ": cannot be opened: No such file or directory"},
         {folder.path(), folder.path() + ": is a folder, not a regular file"},
         {folder / "pipe",
          folder / "pipe" +
              ": not a regular file (a pipe, a device or a socket); copy what it gives into a file"},
         {"/dev/null",
          "/dev/null: not a regular file (a pipe, a device or a socket); copy what it gives into a file"}},
        read);
    expect_messages(
        {{folder.path(), folder.path() + ": cannot be written: Is a directory"},
         {folder / "pipe",
          folder / "pipe" + ": not a regular file (a pipe, a device or a socket); move it away"},
         {"/dev/null", "/dev/null: not a regular file (a pipe, a device or a socket); move it away"}},
        [](const std::string& path) { MetricsWriter{path}; });
    if (::geteuid() == 0) return;  // who may read everything
    ASSERT_EQ(::chmod((folder / "closed").c_str(), 0), 0);
    expect_messages({{folder / "closed", folder / "closed: cannot be opened: Permission denied"}}, read);
}

}  // namespace
}  // namespace q2::test
