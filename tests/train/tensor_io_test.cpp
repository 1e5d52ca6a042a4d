#include "train/tensor_io.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/safetensors.h"
#include "tests/support/temp_folder.h"

namespace q2 {
namespace {

using test::expect_error, test::TempFolder;

TEST(TensorIo, RoundTripsEveryDtype) {
    const TempFolder folder;
    std::vector<float> f32 = {1, -0.0f, 3e-39f, INFINITY};
    std::vector<uint16_t> bf16 = {0x3f80, 0x7fc1};
    std::vector<int32_t> i32 = {-1, 7};
    std::vector<uint8_t> u8 = {255};
    const auto tensors = [](auto& a, auto& b, auto& c, auto& d) {
        return std::vector<NamedTensor>{{"a", Dtype::f32, {2, 2}, a.data()},
                                        {"b", Dtype::bf16, {2}, b.data()},
                                        {"c", Dtype::i32, {1, 2}, c.data()},
                                        {"d", Dtype::u8, {1}, d.data()}};
    };
    save_tensors(folder / "t", tensors(f32, bf16, i32, u8));
    std::vector<float> f32_read(4);
    std::vector<uint16_t> bf16_read(2);
    std::vector<int32_t> i32_read(2);
    std::vector<uint8_t> u8_read(1);
    load_tensors(folder / "t", tensors(f32_read, bf16_read, i32_read, u8_read));
    EXPECT_EQ(f32_read, f32);
    EXPECT_TRUE(std::signbit(f32_read[1]));
    EXPECT_EQ(bf16_read, bf16);
    EXPECT_EQ(i32_read, i32);
    EXPECT_EQ(u8_read, u8);
}

TEST(TensorIo, NamesWhatDoesNotFitAndCopiesNothing) {
    const TempFolder folder;
    std::vector<float> values = {1, 2, 3, 4}, read(4, 0), other(4, 0);
    save_tensors(folder / "t", std::vector<NamedTensor>{{"w", Dtype::f32, {2, 2}, values.data()},
                                                        {"v", Dtype::f32, {4}, values.data()}});
    const auto load = [&](const NamedTensor& wanted) {
        load_tensors(folder / "t", std::vector<NamedTensor>{{"v", Dtype::f32, {4}, read.data()}, wanted});
    };
    expect_error(Exit::data, {folder / "t", "no tensor \"x\""}, [&] {
        load({"x", Dtype::f32, {4}, other.data()});
    });
    expect_error(Exit::data, {folder / "t", "\"w\" has shape (2, 2), the model needs (4, 1)"}, [&] {
        load({"w", Dtype::f32, {4, 1}, other.data()});
    });
    expect_error(Exit::data, {folder / "t", "\"w\" is F32, needed is I32"}, [&] {
        load({"w", Dtype::i32, {2, 2}, other.data()});
    });
    EXPECT_EQ(read, std::vector<float>(4, 0));
}

TEST(TensorIo, WidensTheHalvesOfHuggingFaceModels) {
    const TempFolder folder;
    const std::vector<uint16_t> bf16 = {0x3f80, 0xc000};
    // 1, -2, 65504, the smallest subnormal, the largest subnormal, -0, inf, nan.
    const std::vector<uint16_t> f16 = {0x3c00, 0xc000, 0x7bff, 0x0001, 0x03ff, 0x8000, 0x7c00, 0x7e00};
    write_safetensors(
        folder / "model.safetensors",
        std::vector<SafetensorsInput>{{"model.embed_tokens.weight", "BF16", {1, 2}, bf16.data()},
                                      {"model.norm.weight", "F16", {8}, f16.data()}},
        {{"format", "pt"}});
    std::vector<float> embedding(2), norm(8);
    const std::vector<NamedTensor> wanted = {
        {"model.norm.weight", Dtype::f32, {8}, norm.data()},
        {"model.embed_tokens.weight", Dtype::f32, {1, 2}, embedding.data()}};
    EXPECT_THROW(load_tensors(folder / "model.safetensors", wanted), Error);
    load_tensors(folder / "model.safetensors", wanted, FileDtype::widen);
    EXPECT_EQ(embedding, (std::vector<float>{1, -2}));
    const std::vector<float> expected = {1, -2, 65504, 0x1p-24f, 0x1.ff8p-15f, -0.0f, INFINITY};
    EXPECT_EQ(std::vector<float>(norm.begin(), norm.end() - 1), expected);
    EXPECT_TRUE(std::signbit(norm[5]));
    EXPECT_TRUE(std::isnan(norm[7]));
}

}  // namespace
}  // namespace q2
