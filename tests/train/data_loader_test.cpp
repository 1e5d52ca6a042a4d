#include "train/data_loader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "tests/support/temp_folder.h"

namespace q2 {
namespace {

using test::expect_error, test::TempFolder, test::write_bytes;

/// Headerless uint16 tokens first, first+1, ...
void write_tokens(const std::string& path, int count, int first) {
    std::string bytes(size_t(count) * 2, '\0');
    for (int i = 0; i < count; ++i) {
        bytes[size_t(i) * 2] = char(first + i);
        bytes[size_t(i) * 2 + 1] = char((first + i) >> 8);
    }
    write_bytes(path, bytes);
}

DataSettings settings(std::vector<std::string> patterns, int64_t sequence, int64_t vocab = 65536) {
    return {std::move(patterns), "uint16", sequence, vocab};
}

struct Batch {
    std::vector<int32_t> inputs, targets;
    bool operator==(const Batch&) const = default;
};

Batch batch_of(const DataLoader& loader, int64_t first, int64_t count) {
    const auto size = size_t(count * loader.sequence());
    Batch batch{std::vector<int32_t>(size), std::vector<int32_t>(size)};
    loader.fill(first, count, batch.inputs.data(), batch.targets.data());
    return batch;
}

TEST(DataLoader, WindowsOverlapByOneTokenAndStayInTheirFile) {
    const TempFolder folder;
    write_tokens(folder / "a.bin", 9, 100);  // windows 100..104, 104..108
    write_tokens(folder / "b.bin", 4, 200);  // too short
    write_tokens(folder / "c.bin", 8, 300);  // window 300..304; 305..307 are left over
    const DataLoader loader(settings({folder / "*.bin"}, 4), SampleOrder::sequential);
    EXPECT_EQ(loader.windows(), 3);
    EXPECT_EQ(loader.tokens(), 21);
    EXPECT_EQ(loader.unused_files(), std::vector<std::string>{folder / "b.bin"});
    const Batch batch = batch_of(loader, 0, 3);
    EXPECT_EQ(batch.inputs,
              (std::vector<int32_t>{100, 101, 102, 103, 104, 105, 106, 107, 300, 301, 302, 303}));
    EXPECT_EQ(batch.targets,
              (std::vector<int32_t>{101, 102, 103, 104, 105, 106, 107, 108, 301, 302, 303, 304}));
    EXPECT_EQ(batch_of(loader, 3, 3), batch) << "the next epoch of a sequential loader";
    EXPECT_EQ(loader.location(5).epoch, 1);
    EXPECT_EQ(loader.location(5).file, 2);
    EXPECT_EQ(loader.location(4).offset, 4);
}

TEST(DataLoader, TheLastTokenOfAFileIsATargetAndNothingIsReadBehindIt) {
    const TempFolder folder;
    for (int tokens = 5; tokens <= 20; ++tokens) {
        write_tokens(folder / "a", tokens, 0);
        const DataLoader loader(settings({folder / "a"}, 4), SampleOrder::sequential);
        EXPECT_EQ(loader.windows(), (tokens - 1) / 4);
        EXPECT_EQ(batch_of(loader, loader.windows() - 1, 1).targets[3], (tokens - 1) / 4 * 4);
    }
}

TEST(DataLoader, EveryEpochHoldsEveryWindowOnceInAnotherOrder) {
    const TempFolder folder;
    write_tokens(folder / "a", 2 * 100 + 1, 0);
    write_tokens(folder / "b", 2 * 37 + 1, 1000);
    const DataLoader loader(settings({folder / "a", folder / "b"}, 2), SampleOrder::shuffled, 42);
    ASSERT_EQ(loader.windows(), 137);
    std::vector<std::vector<int32_t>> epochs;
    for (int epoch = 0; epoch < 4; ++epoch) epochs.push_back(batch_of(loader, epoch * 137, 137).inputs);
    std::vector<int32_t> expected(274);
    std::iota(expected.begin(), expected.begin() + 200, 0);
    std::iota(expected.begin() + 200, expected.end(), 1000);
    for (size_t i = 0; i < epochs.size(); ++i) {
        for (size_t j = 0; j < i; ++j) EXPECT_NE(epochs[i], epochs[j]);
        std::sort(epochs[i].begin(), epochs[i].end());
        EXPECT_EQ(epochs[i], expected);
    }
    const DataLoader other_seed(settings({folder / "a", folder / "b"}, 2), SampleOrder::shuffled, 43);
    EXPECT_NE(batch_of(loader, 0, 137), batch_of(other_seed, 0, 137));
}

// Ranks take consecutive parts of a step's samples; a resumed loader starts anywhere, across an epoch's end
// too.
TEST(DataLoader, RanksTogetherReadWhatOneRankReads) {
    const TempFolder folder;
    write_tokens(folder / "a", 3 * 50 + 1, 0);
    const DataLoader one(settings({folder / "a"}, 3), SampleOrder::shuffled, 1);
    for (const int ranks : {2, 4}) {
        for (int64_t step = 0; step < 20; ++step) {
            Batch together;
            for (int rank = 0; rank < ranks; ++rank) {
                const DataLoader own(settings({folder / "a"}, 3), SampleOrder::shuffled, 1);
                const Batch part = batch_of(own, step * 8 + rank * (8 / ranks), 8 / ranks);
                together.inputs.insert(together.inputs.end(), part.inputs.begin(), part.inputs.end());
                together.targets.insert(together.targets.end(), part.targets.begin(), part.targets.end());
            }
            EXPECT_EQ(together, batch_of(one, step * 8, 8)) << ranks << " ranks, step " << step;
        }
    }
}

TEST(DataLoader, RefusesBadDataBeforeTheFirstStep) {
    const TempFolder folder;
    write_tokens(folder / "a", 9, 0);
    write_tokens(folder / "b", 9, 500);
    const auto open = [&](DataSettings s) { DataLoader(s, SampleOrder::shuffled); };
    expect_error(Exit::data, {folder / "a", "data.sequence + 1 = 10", "has 9"},
                 [&] { open(settings({folder / "a"}, 9)); });
    expect_error(Exit::data, {folder / "b", "token 505 at position 5", "model.vocab = 505"}, [&] {
        open(settings({folder / "a", folder / "b"}, 4, 505));
    });
    expect_error(Exit::data, {folder / "z*", "no file matches"}, [&] { open(settings({folder / "z*"}, 4)); });
    expect_error(Exit::data, {"data.train"}, [&] { open(settings({}, 4)); });
}

/// A sparse file of this many bytes, or false where the file system has none.
bool make_sparse(const std::string& path, int64_t bytes) {
    write_bytes(path, "");
    return ::truncate(path.c_str(), bytes) == 0;
}

// The bad token lies behind what is checked at the start: it shows when it is read.
TEST(DataLoader, ReadsBeyondTwoToThe32Tokens) {
    const TempFolder folder;
    const int64_t tokens = (int64_t(1) << 32) + 4097;
    if (!make_sparse(folder / "big", tokens * 2)) GTEST_SKIP() << "no sparse files here";
    {
        std::fstream file(folder / "big", std::ios::in | std::ios::out | std::ios::binary);
        file.seekp((tokens - 1) * 2);
        file.write("\x07\x00", 2);
        file.seekp((tokens - 5000) * 2);
        file.write("\x08\x00", 2);
    }
    DataSettings big = settings({folder / "big"}, 1024, 8);
    big.checked_at_start = 1'000'000;
    const DataLoader loader(big, SampleOrder::sequential);
    EXPECT_EQ(loader.windows(), (int64_t(1) << 22) + 4);
    EXPECT_EQ(loader.location(loader.windows() - 1).offset, tokens - 1025);
    EXPECT_EQ(batch_of(loader, loader.windows() - 1, 1).targets[1023], 7);
    expect_error(Exit::data, {folder / "big", concat("token 8 at position ", tokens - 5000)},
                 [&] { batch_of(loader, loader.windows() - 5, 1); });
}

}  // namespace
}  // namespace q2
