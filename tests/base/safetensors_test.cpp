#include "base/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/support/temp_folder.h"

namespace q2 {
namespace {

using test::expect_error, test::read_bytes, test::TempFolder, test::write_bytes;

std::vector<std::string> golden(const std::string& stem) {
    const char* folder = std::getenv("QUARTET2_GOLDEN");
    return expand_glob((folder ? std::string(folder) : QUARTET2_SOURCE_DIR "/tests/golden") + "/" + stem +
                       "*.safetensors");
}

std::string file_of(const std::string& header, size_t data_bytes) {
    const uint64_t length = header.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    return bytes + header + std::string(data_bytes, 'x');
}

TEST(Safetensors, GoldenQuantisersAreRead) {
    for (const std::string& path : golden("nvfp4")) {
        const SafetensorsFile file(path);
        for (const auto& [name, entry] : file.tensors()) {
            if (!name.ends_with(".x")) continue;
            EXPECT_EQ(entry.dtype, "F32") << name;
            EXPECT_EQ(entry.bytes, size_t(entry.shape.at(0) * entry.shape.at(1)) * 4) << name;
            const std::string codes = name.substr(0, name.size() - 1) + "rtn.codes";
            EXPECT_EQ(file.at(codes).dtype, "U8") << codes;
            EXPECT_EQ(file.at(codes).shape, entry.shape) << codes;
        }
    }
}

TEST(Safetensors, GoldenModelsAreRead) {
    for (const std::string& path : golden("llama_")) {
        const SafetensorsFile file(path);
        const auto config = nlohmann::json::parse(file.metadata().at("config"));
        const int64_t batch = config.at("batch"), sequence = config.at("seq_len"),
                      vocab = config.at("vocab_size");
        EXPECT_EQ(file.at("tokens").dtype, "I32");
        EXPECT_EQ(file.at("tokens").shape, (std::vector<int64_t>{batch, sequence + 1}));
        EXPECT_EQ(file.at("logits").shape, (std::vector<int64_t>{batch, sequence, vocab}));
        float loss;
        std::memcpy(&loss, file.at("loss").data, sizeof loss);
        EXPECT_GT(loss, 0);
    }
}

TEST(Safetensors, RoundTrip) {
    const TempFolder folder;
    const std::vector<float> floats = {1, -2, 3.5f, 0, 7, -0.0f};
    const std::vector<uint8_t> bytes = {1, 2, 3};
    const std::vector<uint16_t> halves = {0x3f80};
    const std::vector<SafetensorsInput> tensors = {{"u8", "U8", {3}, bytes.data()},
                                                   {"bf16", "BF16", {1, 1}, halves.data()},
                                                   {"f32", "F32", {2, 3}, floats.data()},
                                                   {"empty", "F32", {0, 5}, nullptr},
                                                   {"scalar", "F32", {}, floats.data()}};
    const FileSummary written = write_safetensors(folder / "a", tensors, {{"key", "v\"\n"}});
    EXPECT_EQ(written.checksum, summarize_file(folder / "a").checksum);

    const SafetensorsFile file(folder / "a");
    EXPECT_EQ(file.metadata().at("key"), "v\"\n");
    EXPECT_EQ(file.tensors().size(), tensors.size());
    for (const SafetensorsInput& tensor : tensors) {
        const SafetensorsEntry& entry = file.at(tensor.name);
        EXPECT_EQ(entry.dtype, tensor.dtype);
        EXPECT_EQ(entry.shape, tensor.shape);
        if (tensor.data) {
            EXPECT_EQ(std::memcmp(entry.data, tensor.data, entry.bytes), 0);
        }
    }
    const auto address = reinterpret_cast<uintptr_t>(file.at("f32").data);
    EXPECT_EQ(address % 64, 0u) << "the widest tensor comes first, at a multiple of 64";
}

struct Malformed {
    std::string name, bytes, message;
};

std::vector<Malformed> malformed() {
    const auto one = [](const std::string& fields, size_t data = 8) {
        return file_of("{\"t\":{" + fields + "}}", data);
    };
    const auto huge_header = [](uint64_t length) {
        std::string bytes = file_of("{}", 0);
        std::memcpy(bytes.data(), &length, 8);
        return bytes;
    };
    const std::string f32 = "\"dtype\":\"F32\",", shape2 = "\"shape\":[2],",
                      offsets = "\"data_offsets\":[0,8]";
    return {
        {"empty", "", "0 bytes are too few"},
        {"short", "1234567", "7 bytes are too few"},
        {"header past end", huge_header(3), "passes the end of the file"},
        {"header of 2^64-1", huge_header(~uint64_t(0)), "beyond the limit of 100000000"},
        {"header of 100 MB and 1", huge_header(100'000'001), "beyond the limit"},
        {"no header", file_of("", 0), "there is no text"},
        {"a list", file_of("[]", 0), "not a JSON object"},
        {"torn JSON", file_of("{\"t\":{", 0), "not valid JSON"},
        {"two values", file_of("{} {}", 0), "not valid JSON"},
        {"bad UTF-8", file_of("{\"\xff\":1}", 0), "not valid JSON"},
        {"deep", file_of("{\"a\":" + std::string(100000, '['), 0), "nested deeper than 3 levels"},
        {"duplicate tensor",
         file_of("{\"t\":{" + f32 + shape2 + offsets + "},\"t\":{" + f32 + shape2 + offsets + "}}", 8),
         "the key \"t\" is given twice"},
        {"duplicate field", one(f32 + f32 + shape2 + offsets), "the key \"dtype\" is given twice"},
        {"metadata is a list", file_of("{\"__metadata__\":[]}", 0), "__metadata__ is not an object"},
        {"metadata of numbers", file_of("{\"__metadata__\":{\"a\":1}}", 0), "\"a\" is not a string"},
        {"entry is a number", file_of("{\"t\":1}", 0), "tensor \"t\" is not an object"},
        {"no dtype", one(shape2 + offsets), "has no \"dtype\""},
        {"no shape", one(f32 + offsets), "has no \"shape\""},
        {"no offsets", one(f32 + "\"shape\":[2]"), "has no \"data_offsets\""},
        {"unknown key", one(f32 + shape2 + offsets + ",\"x\":1"), "unknown key \"x\""},
        {"unknown dtype", one("\"dtype\":\"F12\"," + shape2 + offsets), "unknown dtype \"F12\""},
        {"dtype is a number", one("\"dtype\":1," + shape2 + offsets), "unknown dtype 1"},
        {"shape is a number", one(f32 + "\"shape\":2," + offsets), "shape is not a list"},
        {"negative size", one(f32 + "\"shape\":[-2]," + offsets), "holds -2, not a size"},
        {"fractional size", one(f32 + "\"shape\":[2.0]," + offsets), "holds 2.0, not a size"},
        {"size of 2^63", one(f32 + "\"shape\":[9223372036854775808]," + offsets), "not a size"},
        {"shape overflows", one(f32 + "\"shape\":[4294967296,4294967296]," + offsets), "overflows"},
        {"shape wraps to the right size", one(f32 + "\"shape\":[4611686018427387906]," + offsets),
         "overflows"},
        {"wrong size", one(f32 + "\"shape\":[3]," + offsets),
         "F32 (3) takes 12 bytes, its data_offsets give 8"},
        {"one offset", one(f32 + shape2 + "\"data_offsets\":[0]"), "has 1 data_offsets"},
        {"three offsets", one(f32 + shape2 + "\"data_offsets\":[0,8,8]"), "has 3 data_offsets"},
        {"negative offset", one(f32 + shape2 + "\"data_offsets\":[-8,0]"), "holds -8, not a size"},
        {"reversed", one(f32 + shape2 + "\"data_offsets\":[8,0]"), "begins at 8, after its end 0"},
        {"past the end", one(f32 + shape2 + "\"data_offsets\":[4,12]"), "ends at byte 12 of 8"},
        {"truncated data", one(f32 + shape2 + offsets, 7), "ends at byte 8 of 7"},
    };
}

TEST(Safetensors, MalformedFilesAreRefusedByMessage) {
    const TempFolder folder;
    for (const Malformed& bad : malformed()) {
        SCOPED_TRACE(bad.name);
        write_bytes(folder / "bad", bad.bytes);
        expect_error(Exit::data, {folder / "bad", bad.message}, [&] { SafetensorsFile(folder / "bad"); });
    }
}

TEST(Safetensors, EveryTruncationOfAFileIsRefused) {
    const TempFolder folder;
    const float value = 1;
    write_safetensors(folder / "a", std::vector<SafetensorsInput>{{"t", "F32", {1}, &value}}, {});
    const std::string bytes = read_bytes(folder / "a");
    for (size_t size = 0; size < bytes.size(); ++size) {
        write_bytes(folder / "b", bytes.substr(0, size));
        EXPECT_THROW(SafetensorsFile(folder / "b"), Error) << size;
    }
}

TEST(Safetensors, ShapesWithAZeroHoldNothing) {
    const TempFolder folder;
    write_bytes(folder / "a", file_of("{\"t\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807,"
                                      "9223372036854775807,0],\"data_offsets\":[0,0]}}",
                                      0));
    EXPECT_EQ(SafetensorsFile(folder / "a").at("t").bytes, 0u);
    expect_error(Exit::data, {folder / "a", "no tensor \"u\""},
                 [&] { SafetensorsFile(folder / "a").at("u"); });
}

}  // namespace
}  // namespace q2
