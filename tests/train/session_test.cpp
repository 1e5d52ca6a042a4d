// Sessions: weights from the seed on any number of threads, and to and from checkpoints.
#include "train/session.h"

#include "tests/support/tiny_training.h"

namespace q2::test {
namespace {

TEST(Session, InitialWeightsDoNotDependOnTheNumberOfThreads) {
    const TinyRun tiny;
    std::vector<std::vector<float>> weights;
    for (const std::string set : {"train.threads=1", "train.threads=2", "train.threads=4", "train.seed=7"}) {
        TinyTraining run(tiny.config({set}));
        weights.push_back(run.copy(run.session.memory().model.params));
    }
    EXPECT_EQ(weights[1], weights[0]);
    EXPECT_EQ(weights[2], weights[0]);
    EXPECT_NE(weights[3], weights[0]);
}

TEST(Session, ACheckpointBringsBackWeightsAndMoments) {
    const TinyRun tiny;
    TinyTraining one(tiny.config()), two(tiny.config({"train.seed=9"}));
    for (int64_t step = 0; step < 2; ++step) train_step(one.training, step);
    const std::string folder = one.save(tiny / "run", 2);
    const CheckpointMeta meta = verify_checkpoint(folder);
    EXPECT_EQ(meta.step, 2);
    EXPECT_EQ(meta.data_position, 2 * 8);
    two.session.load(folder);
    const TrainingMemory &a = one.session.memory(), &b = two.session.memory();
    EXPECT_EQ(one.copy(a.model.params), two.copy(b.model.params));
    EXPECT_EQ(one.copy(a.moment1), two.copy(b.moment1));
    EXPECT_EQ(one.copy(a.moment2), two.copy(b.moment2));
    Session reader(tiny.config(), 3);
    reader.load(folder);
    EXPECT_EQ(one.copy(reader.memory().model.params), one.copy(a.model.params));
}

TEST(Session, TiedWeightsAreStoredOnce) {
    const TinyRun tiny;
    TinyTraining run(tiny.config({"model.tied=true"}));
    const std::string file = run.save(tiny / "run", 1) + "/model.safetensors";
    EXPECT_EQ(read_bytes(file).find("lm_head"), std::string::npos);
    EXPECT_EQ(run.session.memory().model.head.value.data, run.session.memory().model.embedding.value.data);
}

TEST(Session, ACheckpointOfAnotherModelIsRefused) {
    const TinyRun tiny;
    TinyTraining run(tiny.config({"model.tied=true"}));
    const std::string folder = run.save(tiny / "run", 1);
    expect_error(Exit::data, {folder + "/model.safetensors", "lm_head.weight"},
                 [&] { TinyTraining(tiny.config()).session.load(folder); });
    expect_error(Exit::data, {folder + "/model.safetensors", "mlp.gate_proj.weight", "128", "256"}, [&] {
        TinyTraining(tiny.config({"model.tied=true", "model.mlp=256"})).session.load(folder);
    });
}

}  // namespace
}  // namespace q2::test
