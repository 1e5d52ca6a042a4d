// Saves beside the training: what is written is the copy, an error comes out on the training's thread, and
// the metrics are there before the checkpoint is.
#include "train/checkpoint_writer.h"

#include <thread>

#include "tests/support/tiny_training.h"
#include "train/memory_plan.h"

namespace q2::test {
namespace {

namespace fs = std::filesystem;

struct Writing {
    explicit Writing(const Overrides& overrides = {}) : training(tiny.config(overrides)) {
        fs::create_directory(run);
        metrics.emplace(run + "/metrics.jsonl");
        writer.emplace(run, training.session.config().checkpoint, *metrics);
    }
    void start(int64_t step) {
        copy.take();
        write(step);
    }
    void write(int64_t step) {
        writer->start(training.session.meta(step), copy.files(training.session.config().model));
    }

    TinyRun tiny;
    std::string run = tiny / "run";
    TinyTraining training;
    Snapshot copy{training.session.ctx(), training.session.memory()};
    std::optional<MetricsWriter> metrics;
    std::optional<CheckpointWriter> writer;
};

TEST(Snapshot, IsAsLargeAsThePlanSays) {
    Writing w;
    EXPECT_EQ(w.copy.bytes(), checkpoint_copy_bytes(w.training.session.config()));
}

TEST(CheckpointWriter, WritesTheCopyAfterTheWeightsHaveChanged) {
    Writing w;
    for (int64_t step = 0; step < 2; ++step) train_step(w.training.training, step);
    const std::string wanted = w.training.save(w.tiny / "wanted", 2);
    w.copy.take();
    train_step(w.training.training, 2);
    w.write(2);
    const auto saved = w.writer->wait();
    ASSERT_TRUE(saved);
    EXPECT_EQ(saved->folder, checkpoint_of(w.run, 2));
    EXPECT_EQ(saved->warning, "");
    for (const char* file : {"/model.safetensors", "/optimizer.safetensors"})
        EXPECT_TRUE(read_bytes(saved->folder + file) == read_bytes(wanted + file)) << file;
    EXPECT_FALSE(w.writer->wait()) << "told once";
    EXPECT_FALSE(w.writer->poll());
}

TEST(CheckpointWriter, AnErrorComesOutOnceAndTheNextSaveIsMade) {
    Writing w;
    write_bytes(w.run + "/checkpoints", "in the way");
    w.start(1);
    expect_error(Exit::data, {w.run + "/checkpoints"}, [&] {
        while (!w.writer->poll()) std::this_thread::yield();
    });
    EXPECT_FALSE(w.writer->wait());
    fs::remove(w.run + "/checkpoints");
    w.start(2);
    EXPECT_EQ(w.writer->wait()->folder, checkpoint_of(w.run, 2));
}

TEST(CheckpointWriter, PrunesAsTheConfigSays) {
    Writing w({"checkpoint.keep=1", "checkpoint.keep_every=2"});
    for (int64_t step = 1; step <= 5; ++step) {
        w.start(step);
        w.writer->wait();
    }
    for (int64_t step = 1; step <= 5; ++step)
        EXPECT_EQ(fs::exists(checkpoint_of(w.run, step)), step % 2 == 0 || step == 5) << step;
}

TEST(CheckpointWriter, ItsEndWaitsForTheSaveAtHand) {
    Writing w;
    w.start(3);
    w.writer.reset();
    verify_checkpoint(checkpoint_of(w.run, 3));
}

}  // namespace
}  // namespace q2::test
