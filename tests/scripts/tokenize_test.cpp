// scripts/tokenize.py on a tokenizer of five words. Needs a Python with the package tokenizers
// (QUARTET2_PYTHON names one, default python3); skips without.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/temp_folder.h"
#include "train/token_file.h"

namespace q2 {
namespace {

using test::read_bytes, test::TempFolder, test::write_bytes;

constexpr const char* kTokenizer = R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[
    {"id":0,"content":"<|endoftext|>","single_word":false,
    "lstrip":false,"rstrip":false,"normalized":false,"special":true}],
    "normalizer":null,"pre_tokenizer":{"type":"WhitespaceSplit"},"post_processor":null,"decoder":null,
    "model":{"type":"WordLevel","vocab":{"<|endoftext|>":0,"a":1,"b":2,"c":LAST,"?":4},"unk_token":"?"}})";

std::string python() {
    const char* named = std::getenv("QUARTET2_PYTHON");
    return named ? named : "python3";
}

class TokenizeScript : public ::testing::Test {
  protected:
    void SetUp() override {
        if (std::system((python() + " -c 'import tokenizers' 2>/dev/null").c_str()) != 0)
            GTEST_SKIP() << python() << " has no package tokenizers";
        set_last_id("3");
    }
    void set_last_id(const std::string& id) {
        std::string json = kTokenizer;
        write_bytes(folder / "tokenizer.json", json.replace(json.find("LAST"), 4, id));
    }
    bool run(const std::string& arguments) {
        const std::string command = python() + " " QUARTET2_SOURCE_DIR "/scripts/tokenize.py --tokenizer " +
                                    (folder / "tokenizer.json") + " " + arguments + " >" +
                                    (folder / "stdout") + " 2>" + (folder / "stderr");
        return std::system(command.c_str()) == 0;
    }
    std::vector<int32_t> tokens_of(const std::string& name) {
        const TokenFile file(folder / name, TokenFormat::automatic, 65536);
        std::vector<int32_t> tokens(size_t(file.tokens()));
        file.read(0, file.tokens(), tokens.data());
        return tokens;
    }
    TempFolder folder;
};

using Tokens = std::vector<int32_t>;

TEST_F(TokenizeScript, EndsEveryDocument) {
    write_bytes(folder / "text", "a b\nc\n<|endoftext|>\nx\n");
    ASSERT_TRUE(run((folder / "text") + " --out " + (folder / "t"))) << read_bytes(folder / "stderr");
    EXPECT_EQ(tokens_of("t"), (Tokens{1, 2, 3, 0, 4, 0}));
    ASSERT_TRUE(run("--decode 1 2,3 0"));
    EXPECT_EQ(read_bytes(folder / "stdout"), "a b c <|endoftext|>\n");
    EXPECT_FALSE(run("--decode 9"));
}

TEST_F(TokenizeScript, GivesTheLastDocumentsToValidation) {
    std::string text;
    for (int i = 0; i < 9; ++i) text += "a b a\n<|endoftext|>\n";
    write_bytes(folder / "text", text + "c b a\n");
    ASSERT_TRUE(run((folder / "text") + " --out " + (folder / "t") + " --val " + (folder / "v")));
    EXPECT_EQ(tokens_of("v"), (Tokens{3, 2, 1, 0}));
    EXPECT_EQ(tokens_of("t").size(), 36u);
}

TEST_F(TokenizeScript, WidensForAWideVocabulary) {
    set_last_id("70000");
    write_bytes(folder / "text", "a c");
    ASSERT_TRUE(run((folder / "text") + " --out " + (folder / "t")));
    const TokenFile file(folder / "t", TokenFormat::automatic, 128256);
    Tokens tokens(3);
    file.read(0, file.tokens(), tokens.data());
    EXPECT_EQ(tokens, (Tokens{1, 70000, 0}));
}

TEST_F(TokenizeScript, LeavesNothingBehindAnError) {
    write_bytes(folder / "bad", "a\xff");
    EXPECT_FALSE(run((folder / "bad") + " --out " + (folder / "t")));
    EXPECT_NE(read_bytes(folder / "stderr").find(folder / "bad"), std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(folder / "t"));
    EXPECT_FALSE(std::filesystem::exists(folder / "t.tmp"));
}

}  // namespace
}  // namespace q2
