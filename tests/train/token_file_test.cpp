#include "train/token_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "tests/support/temp_folder.h"

namespace q2 {
namespace {

using test::expect_error, test::TempFolder, test::write_bytes;

template <class T>
std::string bytes_of(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <class T>
std::string llmc_file(const std::vector<T>& tokens) {
    std::vector<int32_t> header(256);
    header[0] = sizeof(T) == 2 ? 20240520 : 20240801;
    header[1] = sizeof(T) == 2 ? 1 : 7;
    header[2] = int32_t(tokens.size());
    return bytes_of(header) + bytes_of(tokens);
}

std::vector<int32_t> read_all(const TokenFile& file) {
    std::vector<int32_t> tokens(size_t(file.tokens()));
    file.read(0, file.tokens(), tokens.data());
    return tokens;
}

const std::vector<uint16_t> kNarrow = {1, 2, 65535, 0, 9};
const std::vector<uint32_t> kWide = {1, 2, 100000, 0};

TEST(TokenFile, ReadsBothHeadedFormats) {
    const TempFolder folder;
    write_bytes(folder / "narrow", llmc_file(kNarrow));
    write_bytes(folder / "wide", llmc_file(kWide));
    EXPECT_EQ(read_all(TokenFile(folder / "narrow", TokenFormat::automatic, 65536)),
              std::vector<int32_t>(kNarrow.begin(), kNarrow.end()));
    EXPECT_EQ(read_all(TokenFile(folder / "wide", TokenFormat::automatic, 128256)),
              std::vector<int32_t>(kWide.begin(), kWide.end()));
}

TEST(TokenFile, ReadsHeaderlessFilesByKey) {
    const TempFolder folder;
    write_bytes(folder / "narrow", bytes_of(kNarrow));
    write_bytes(folder / "wide", bytes_of(kWide));
    EXPECT_EQ(read_all(TokenFile(folder / "narrow", TokenFormat::u16, 65536)),
              std::vector<int32_t>(kNarrow.begin(), kNarrow.end()));
    EXPECT_EQ(read_all(TokenFile(folder / "wide", TokenFormat::u32, 128256)),
              std::vector<int32_t>(kWide.begin(), kWide.end()));
    expect_error(Exit::data, {folder / "wide", "data.format"},
                 [&] { TokenFile(folder / "wide", TokenFormat::automatic, 128256); });
}

TEST(TokenFile, WritesTheHeaderItReads) {
    const TempFolder folder;
    AtomicFile out(folder / "a");
    write_token_header(out, 4, int64_t(kWide.size()));
    out.write(bytes_of(kWide));
    out.commit();
    EXPECT_EQ(test::read_bytes(folder / "a"), llmc_file(kWide));
}

// The header's count has 32 bits: the file's size decides, and they must agree modulo 2^32.
TEST(TokenFile, CountsBeyond32Bits) {
    const TempFolder folder;
    const int64_t tokens = (int64_t(1) << 32) + 5;
    write_bytes(folder / "big", llmc_file(kNarrow));
    if (::truncate((folder / "big").c_str(), 1024 + 2 * tokens) != 0) GTEST_SKIP() << "no sparse files here";
    const TokenFile file(folder / "big", TokenFormat::automatic, 65536);
    EXPECT_EQ(file.tokens(), tokens);
    std::vector<int32_t> last(3, -1);
    file.read(tokens - 3, 3, last.data());
    EXPECT_EQ(last, std::vector<int32_t>(3, 0));
}

struct Bad {
    std::string name, bytes, message;
    TokenFormat format;
    int64_t vocab;
};

TEST(TokenFile, RefusesWhatDoesNotFit) {
    const std::string good = llmc_file(kNarrow);
    std::string version = good, count = good;
    version[4] = 2;
    count[8] = 6;
    const std::vector<Bad> cases = {
        {"empty", "", "the file is empty", TokenFormat::automatic, 300},
        {"text", "some text", "quartet2 tokenize", TokenFormat::automatic, 300},
        {"short header", good.substr(0, 1023), "1023 bytes, its header alone takes 1024",
         TokenFormat::automatic, 300},
        {"version", version, "version 2", TokenFormat::automatic, 65536},
        {"count", count, "announces 6 tokens (modulo 2^32), the file holds 5", TokenFormat::automatic, 65536},
        {"truncated", good.substr(0, good.size() - 2), "the file holds 4", TokenFormat::automatic, 65536},
        {"half a token", good.substr(0, good.size() - 1), "holds 4 and a part of one", TokenFormat::automatic,
         65536},
        {"header denied", good, "data.format to auto", TokenFormat::u16, 65536},
        {"odd bytes", "abc", "3 bytes are not a whole number of uint16", TokenFormat::u16, 300},
        {"two mod four", "abcdef", "not a whole number of uint32", TokenFormat::u32, 300},
        {"wide vocabulary", good, "uint16 tokens, too narrow for model.vocab = 65537", TokenFormat::automatic,
         65537},
    };
    const TempFolder folder;
    for (const Bad& bad : cases) {
        SCOPED_TRACE(bad.name);
        write_bytes(folder / "bad", bad.bytes);
        expect_error(Exit::data, {folder / "bad", bad.message},
                     [&] { TokenFile(folder / "bad", bad.format, bad.vocab); });
    }
    expect_error(Exit::config, {"data.format", "uint8"}, [] { parse_token_format("uint8"); });
}

TEST(TokenFile, FindsTokensBeyondTheVocabulary) {
    const TempFolder folder;
    write_bytes(folder / "narrow", llmc_file(kNarrow));
    const TokenFile narrow(folder / "narrow", TokenFormat::automatic, 65535);
    EXPECT_EQ(narrow.find_beyond_vocab(0, 5), 2);
    EXPECT_EQ(narrow.find_beyond_vocab(3, 2), -1);
    std::vector<int32_t> out(5);
    expect_error(Exit::data, {folder / "narrow", "token 65535 at position 2", "model.vocab = 65535"},
                 [&] { narrow.read(0, 5, out.data()); });
    // As a signed integer this one would be below any vocabulary.
    write_bytes(folder / "wide", bytes_of(std::vector<uint32_t>{0xffffffffu}));
    const TokenFile wide(folder / "wide", TokenFormat::u32, 128256);
    EXPECT_EQ(wide.find_beyond_vocab(0, 1), 0);
    EXPECT_THROW(wide.read(0, 2, out.data()), Error) << "past the end";
    EXPECT_THROW(wide.read(-1, 1, out.data()), Error) << "before the start";
}

}  // namespace
}  // namespace q2
