#include "commands/tokenize.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "tests/support/temp_folder.h"
#include "train/token_file.h"

namespace q2 {
namespace {

using test::expect_error, test::TempFolder, test::write_bytes;

std::string text_of(const std::string& path) {
    const TokenFile file(path, TokenFormat::automatic, 256);
    std::vector<int32_t> tokens(size_t(file.tokens()));
    file.read(0, file.tokens(), tokens.data());
    return {tokens.begin(), tokens.end()};
}

TEST(Tokenize, BytesBecomeTokensAndTheLastTenthIsForValidation) {
    const TempFolder folder;
    write_bytes(folder / "a.txt", "abc\xff");
    write_bytes(folder / "b.txt", std::string(15, 'd') + "e");
    EXPECT_EQ(tokenize({{folder / "*.txt"}, folder / "train", folder / "val"}), 0);
    EXPECT_EQ(text_of(folder / "train"), "abc\xff" + std::string(14, 'd'));
    EXPECT_EQ(text_of(folder / "val"), "de");
    EXPECT_EQ(tokenize({{folder / "b.txt", folder / "a.txt"}, folder / "all", ""}), 0);
    EXPECT_EQ(text_of(folder / "all"), std::string(15, 'd') + "eabc\xff");
}

TEST(Tokenize, CutsLongTextsAtTheRightByte) {
    const TempFolder folder;
    std::string text;
    for (int i = 0; i < 3'000'000; ++i) text += char(i % 251);
    write_bytes(folder / "a", text);
    write_bytes(folder / "b", text);
    tokenize({{folder / "a", folder / "b"}, folder / "train", folder / "val", 0.75});
    EXPECT_TRUE(text_of(folder / "train") == text.substr(0, 1'500'000));
    EXPECT_TRUE(text_of(folder / "val") == text.substr(1'500'000) + text);
}

TEST(Tokenize, RefusesWithoutWriting) {
    const TempFolder folder;
    write_bytes(folder / "a", "0123456789");
    write_bytes(folder / "short", "12345");
    const std::string a = folder / "a", out = folder / "out";
    expect_error(Exit::data, {folder / "none", "no such file"}, [&] {
        tokenize({{folder / "none"}, out, ""});
    });
    expect_error(Exit::data, {"5 bytes", "too few"}, [&] {
        tokenize({{folder / "short"}, out, folder / "v"});
    });
    expect_error(Exit::usage, {"same file"}, [&] { tokenize({{a}, out, out}); });
    expect_error(Exit::usage, {a, "destroy"}, [&] { tokenize({{a}, a, ""}); });
    expect_error(Exit::usage, {"--val-fraction"}, [&] { tokenize({{a}, out, folder / "v", 1.0}); });
    expect_error(Exit::data, {folder / "no/v"}, [&] { tokenize({{a}, out, folder / "no/v"}); });
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2);
}

TEST(Tokenize, TheCommandLineReachesTheOptions) {
    const TempFolder folder;
    write_bytes(folder / "a", "0123456789");
    CLI::App app;
    std::function<int()> run;
    add_tokenize(app, run);
    app.parse("tokenize " + (folder / "a") + " --out " + (folder / "t") + " --val " + (folder / "v") +
              " --val-fraction 0.3");
    ASSERT_TRUE(run);
    EXPECT_EQ(run(), 0);
    EXPECT_EQ(text_of(folder / "v"), "789");
}

}  // namespace
}  // namespace q2
