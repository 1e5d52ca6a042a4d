#include "base/checksum.h"

#include <gtest/gtest.h>

#include <string>

namespace q2 {
namespace {

uint64_t checksum_of(const std::string& text) {
    Checksum checksum;
    checksum.update(text.data(), text.size());
    return checksum.value();
}

std::string numbers(size_t size) {
    std::string bytes(size, '\0');
    for (size_t i = 0; i < size; ++i) bytes[i] = char(i * 37 + i / 251);
    return bytes;
}

// Values of the reference implementation (xxhsum -H64).
TEST(Checksum, EqualsXxh64) {
    EXPECT_EQ(checksum_of(""), 0xEF46DB3751D8E999u);
    EXPECT_EQ(checksum_of("a"), 0xD24EC4F1A98C6E5Bu);
    EXPECT_EQ(checksum_of("abc"), 0x44BC2CF5AD770999u);
    EXPECT_EQ(checksum_of(numbers(1000)), 0xB662D17E07DA89DFu);
    EXPECT_EQ(checksum_of(numbers(47)), 0x46BE87DA448ADF5Fu);
}

TEST(Checksum, DoesNotDependOnTheCuts) {
    const std::string bytes = numbers(300);
    for (size_t piece = 1; piece <= 100; ++piece) {
        Checksum checksum;
        for (size_t at = 0; at < bytes.size(); at += piece)
            checksum.update(bytes.data() + at, std::min(piece, bytes.size() - at));
        EXPECT_EQ(checksum.value(), checksum_of(bytes)) << piece;
    }
}

TEST(Checksum, SeesEveryBit) {
    std::string bytes = numbers(75);
    const uint64_t before = checksum_of(bytes);
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
        bytes[bit / 8] ^= char(1 << bit % 8);
        EXPECT_NE(checksum_of(bytes), before) << bit;
        bytes[bit / 8] ^= char(1 << bit % 8);
    }
}

}  // namespace
}  // namespace q2
