#include "train/checkpoint.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/support/temp_folder.h"

namespace q2 {
namespace {

using test::expect_error, test::read_bytes, test::TempFolder, test::write_bytes;
namespace fs = std::filesystem;

struct State {
    std::vector<float> weights, moments;

    explicit State(float value) : weights(6, value), moments(3, -value) {}
    std::vector<CheckpointFile> files() {
        return {{"model.safetensors", {{"w", Dtype::f32, {2, 3}, weights.data()}}},
                {"optimizer.safetensors", {{"m", Dtype::f32, {3}, moments.data()}}}};
    }
};

std::string save(const std::string& run, int64_t step, float value = 1) {
    State state(value);
    CheckpointMeta meta;
    meta.step = step;
    meta.seed = ~uint64_t(0);
    meta.world_size = 4;
    meta.data_position = int64_t(1) << 40;
    meta.config = {{"lr", 0.1}, {"name", "x"}};
    meta.extra = {{"algorithm", 7}};
    return save_checkpoint(run, meta, state.files());
}

std::vector<std::string> names(const std::string& run) {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(run + "/checkpoints"))
        found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
}

using Names = std::vector<std::string>;

TEST(Checkpoint, RoundTrip) {
    const TempFolder run;
    const std::string folder = save(run.path(), 1000, 2.5f);
    EXPECT_EQ(folder, run / "checkpoints/step-00001000");
    EXPECT_EQ(names(run.path()), Names{"step-00001000"});
    const CheckpointSearch search = find_latest_checkpoint(run.path());
    ASSERT_TRUE(search.folder);
    EXPECT_EQ(*search.folder, folder);
    EXPECT_TRUE(search.skipped.empty());
    EXPECT_EQ(search.meta.step, 1000);
    EXPECT_EQ(search.meta.seed, ~uint64_t(0));
    EXPECT_EQ(search.meta.world_size, 4);
    EXPECT_EQ(search.meta.data_position, int64_t(1) << 40);
    EXPECT_EQ(search.meta.config, (nlohmann::json{{"lr", 0.1}, {"name", "x"}}));
    EXPECT_EQ(search.meta.extra.at("algorithm"), 7);
    State read(0);
    for (const CheckpointFile& file : read.files()) load_tensors(folder + "/" + file.name, file.tensors);
    EXPECT_EQ(read.weights, State(2.5f).weights);
    EXPECT_EQ(read.moments, State(2.5f).moments);
}

TEST(Checkpoint, ARunWithoutAnyHasNone) {
    const TempFolder run;
    EXPECT_FALSE(find_latest_checkpoint(run.path()).folder);
    EXPECT_FALSE(find_latest_checkpoint(run / "missing").folder);
    EXPECT_TRUE(prune_checkpoints(run.path(), 1).empty());
}

/// Damages the newest of two checkpoints; the older must win and the reason be told.
template <class Damage>
void expect_older_wins(const std::string& reason, Damage damage) {
    SCOPED_TRACE(reason);
    const TempFolder run;
    const std::string older = save(run.path(), 10), newer = save(run.path(), 20);
    damage(newer);
    const CheckpointSearch search = find_latest_checkpoint(run.path());
    ASSERT_TRUE(search.folder);
    EXPECT_EQ(*search.folder, older);
    EXPECT_EQ(search.meta.step, 10);
    ASSERT_EQ(search.skipped.size(), 1u);
    EXPECT_EQ(search.skipped[0].folder.substr(0, newer.size()), newer);
    EXPECT_NE(search.skipped[0].reason.find(reason), std::string::npos) << search.skipped[0].reason;
}

TEST(Checkpoint, ADamagedOneIsSkippedWithItsReason) {
    for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
        expect_older_wins(concat(name, ": its checksum differs"), [&](const std::string& folder) {
            std::string bytes = read_bytes(folder + "/" + name);
            bytes.back() ^= 1;
            write_bytes(folder + "/" + name, bytes);
        });
        expect_older_wins(concat(name, ": 0 bytes, the manifest says"),
                          [&](const std::string& folder) { write_bytes(folder + "/" + name, ""); });
        expect_older_wins(concat(name, ": cannot be opened"),
                          [&](const std::string& folder) { fs::remove(folder + "/" + name); });
    }
    expect_older_wins("manifest.json: cannot be opened",
                      [](const std::string& folder) { fs::remove(folder + "/manifest.json"); });
    expect_older_wins("its save was interrupted",
                      [](const std::string& folder) { fs::rename(folder, folder + ".tmp"); });
    expect_older_wins("[1] is not an object",
                      [](const std::string& folder) { write_bytes(folder + "/manifest.json", "[1]"); });
    expect_older_wins("its manifest is of step 10", [](const std::string& folder) {
        fs::remove_all(folder);
        fs::copy(fs::path(folder).parent_path() / "step-00000010", folder);
    });
}

// A changed byte of a manifest is either seen or changes nothing that it says (white space).
TEST(Checkpoint, EveryByteOfTheManifestCounts) {
    const TempFolder run;
    const std::string folder = save(run.path(), 1), path = folder + "/manifest.json";
    const std::string good = read_bytes(path);
    const auto content = nlohmann::json::parse(good);
    for (size_t i = 0; i < good.size(); ++i) {
        std::string bad = good;
        bad[i] ^= 1;
        write_bytes(path, bad);
        try {
            verify_checkpoint(folder);
            EXPECT_EQ(nlohmann::json::parse(bad), content) << "byte " << i;
        } catch (const Error&) {
        }
    }
    for (size_t size = 0; size + 2 < good.size(); ++size) {
        write_bytes(path, good.substr(0, size));
        EXPECT_THROW(verify_checkpoint(folder), Error) << size;
    }
}

TEST(Checkpoint, AManifestCannotPointOutside) {
    const TempFolder run;
    const std::string folder = save(run.path(), 1), path = folder + "/manifest.json";
    auto manifest = nlohmann::json::parse(read_bytes(path));
    manifest.erase("xxh64");
    manifest["files"] = {{"../../secret", {{"size", 0}, {"xxh64", ""}}}};
    const std::string text = manifest.dump();
    Checksum checksum;
    checksum.update(text.data(), text.size());
    std::ostringstream hex;
    hex << std::hex << checksum.value();
    manifest["xxh64"] = std::string(16 - hex.str().size(), '0') + hex.str();
    write_bytes(path, manifest.dump());
    expect_error(Exit::data, {path, "is not a file's name"}, [&] { verify_checkpoint(folder); });
}

TEST(Checkpoint, LeftoversOfAKilledSaveAreReplaced) {
    const TempFolder run;
    save(run.path(), 10);
    for (const char* name : {"step-00000020.tmp", "step-00000030.tmp"}) {
        fs::create_directories(run / "checkpoints/" + name);
        write_bytes(run / "checkpoints/" + name + "/model.safetensors", "part");
        write_bytes(run / "checkpoints/" + name + "/stale", "part");
    }
    EXPECT_EQ(find_latest_checkpoint(run.path()).skipped.size(), 2u);
    const std::string folder = save(run.path(), 20);
    EXPECT_EQ(names(run.path()), (Names{"step-00000010", "step-00000020"}));
    EXPECT_FALSE(fs::exists(folder + "/stale"));
    EXPECT_EQ(*find_latest_checkpoint(run.path()).folder, folder);
}

TEST(Checkpoint, TheSameStepIsReplaced) {
    const TempFolder run;
    save(run.path(), 10, 1);
    const std::string folder = save(run.path(), 10, 2);
    EXPECT_EQ(names(run.path()), Names{"step-00000010"});
    verify_checkpoint(folder);
    State read(0);
    load_tensors(folder + "/model.safetensors", read.files()[0].tensors);
    EXPECT_EQ(read.weights, State(2).weights);
}

TEST(Checkpoint, AFailedSaveLeavesNothing) {
    const TempFolder run;
    write_bytes(run / "checkpoints", "in the way");
    expect_error(Exit::data, {run / "checkpoints"}, [&] { save(run.path(), 1); });
    fs::remove(run / "checkpoints");

    const std::string older = save(run.path(), 1);
    State state(1);
    auto files = state.files();
    files.push_back({"no/such/folder", {}});
    CheckpointMeta meta;
    meta.step = 2;
    expect_error(Exit::data, {"no/such/folder.tmp", "cannot be written"},
                 [&] { save_checkpoint(run.path(), meta, files); });
    EXPECT_EQ(names(run.path()), Names{"step-00000001"});
    EXPECT_EQ(*find_latest_checkpoint(run.path()).folder, older);
}

TEST(Checkpoint, StepsAreOrderedAsNumbers) {
    const TempFolder run;
    save(run.path(), 99'999'999);
    const std::string newest = save(run.path(), 100'000'000);
    fs::create_directories(run / "checkpoints/step-best");
    fs::create_directories(run / "checkpoints/step-99999999999999999999");
    EXPECT_EQ(*find_latest_checkpoint(run.path()).folder, newest);
}

TEST(Checkpoint, SomeAreKeptForGood) {
    const TempFolder run;
    for (int step = 10; step <= 70; step += 10) save(run.path(), step);
    prune_checkpoints(run.path(), 2, 30);
    EXPECT_EQ(names(run.path()), (Names{"step-00000030", "step-00000060", "step-00000070"}));
    save(run.path(), 80);
    prune_checkpoints(run.path(), 1, 30);
    EXPECT_EQ(names(run.path()), (Names{"step-00000030", "step-00000060", "step-00000080"}));
    // Those kept for good go on where the newest is lost.
    fs::remove(run / "checkpoints/step-00000080/manifest.json");
    prune_checkpoints(run.path(), 1, 0);
    EXPECT_EQ(names(run.path()), (Names{"step-00000060", "step-00000080"}));
}

TEST(Checkpoint, AllAreLookedAt) {
    const TempFolder run;
    for (int step = 1; step <= 3; ++step) save(run.path(), step);
    fs::remove(run / "checkpoints/step-00000002/model.safetensors");
    fs::rename(run / "checkpoints/step-00000003", run / "checkpoints/step-00000003.tmp");
    const std::vector<CheckpointVerdict> all = verify_checkpoints(run.path());
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(all[0].step, 3);
    EXPECT_FALSE(all[0].finished);
    EXPECT_NE(all[1].problem.find("model.safetensors: cannot be opened"), std::string::npos);
    EXPECT_EQ(all[2].problem, "");
    EXPECT_TRUE(all[2].finished);
    EXPECT_TRUE(verify_checkpoints(run / "missing").empty());
}

// A reader beside a training that keeps one checkpoint always finds one, and tells of none as damaged.
TEST(Checkpoint, AReaderDoesNotMindThatOldOnesGo) {
    const TempFolder run;
    save(run.path(), 1);
    std::thread training([&] {
        for (int step = 2; step <= 60; ++step) {
            save(run.path(), step);
            prune_checkpoints(run.path(), 1);
        }
    });
    int64_t newest = 1;
    while (newest < 60) {
        const CheckpointSearch search = find_latest_checkpoint(run.path());
        EXPECT_TRUE(search.folder);
        EXPECT_GE(search.meta.step, newest);
        newest = search.meta.step;
        for (const SkippedCheckpoint& s : search.skipped) EXPECT_FALSE(s.finished) << s.reason;
        if (testing::Test::HasFailure()) break;
    }
    training.join();
}

TEST(Checkpoint, PruningKeepsTheNewestGoodOnes) {
    const TempFolder run;
    for (int step = 1; step <= 5; ++step) save(run.path(), step);
    EXPECT_TRUE(prune_checkpoints(run.path(), 0).empty());
    EXPECT_TRUE(prune_checkpoints(run.path(), 9).empty());
    EXPECT_EQ(prune_checkpoints(run.path(), 3),
              (Names{run / "checkpoints/step-00000002", run / "checkpoints/step-00000001"}));
    // The newest is damaged in one bit: it does not count, and the last good one stays.
    std::string bytes = read_bytes(run / "checkpoints/step-00000005/model.safetensors");
    bytes.back() ^= 1;
    write_bytes(run / "checkpoints/step-00000005/model.safetensors", bytes);
    prune_checkpoints(run.path(), 1);
    EXPECT_EQ(names(run.path()), (Names{"step-00000004", "step-00000005"}));
    fs::remove(run / "checkpoints/step-00000004/manifest.json");
    EXPECT_TRUE(prune_checkpoints(run.path(), 1).empty()) << "none is sure, so none goes";
}

}  // namespace
}  // namespace q2
