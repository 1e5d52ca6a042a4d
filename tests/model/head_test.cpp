// The head in chunks of rows, which never holds all logits: the same loss and gradient in chunks of any size.
#include "model/model.h"

#include "tests/support/device.h"
#include "tests/support/tiny_training.h"

namespace q2::test {
namespace {

struct HeadResult {
    float loss;
    std::vector<float> dnormed, grads;
};

HeadResult run_head(TinyTraining& run, int64_t rows) {
    const Pass whole = run.first_micro_batch();
    Activations act = whole.act;
    act.logits = act.logits.slice(0, rows);
    const Pass pass{whole.ctx, whole.model, act, whole.state, whole.ids, whole.targets, {}};
    forward(pass);
    head(pass, &pass.state->loss, 1.0f / float(act.tokens()), true);
    return {pass.state->loss, run.copy(act.dnormed), run.copy(pass.model.grads)};
}

TEST(Head, ChunksOfAnySizeAgree) {
    const TinyRun tiny;
    for (const std::string tied : {"false", "true"}) {
        TinyTraining run(tiny.config({"model.activations=float32", "model.tied=" + tied}));
        const int64_t tokens = 4 * 32;
        const HeadResult whole = run_head(run, tokens);
        EXPECT_NEAR(whole.loss, std::log(256.0), 0.2);
        for (const int64_t rows : {1, 16, 48, 100, 127}) {
            const HeadResult parts = run_head(run, rows);
            EXPECT_NEAR(parts.loss, whole.loss, 1e-6) << rows;
            EXPECT_LT(relative_l2(parts.dnormed, whole.dnormed), 1e-6) << rows;
            EXPECT_LT(relative_l2(parts.grads, whole.grads), 1e-6) << rows;
        }
    }
}

TEST(Head, AChunkIsBoundedAtAnyVocabulary) {
    for (const int64_t vocab : {2, 256, 32000, 128256, 1 << 20, 1 << 27})
        for (const std::string type : {"float32", "bfloat16"})
            for (const int64_t tokens : {1, 100, 4096, 1 << 20}) {
                const ModelConfig m = {.vocab = vocab, .activations = type};
                const int64_t rows = head_chunk(m, tokens);
                EXPECT_GE(rows, 1);
                EXPECT_LE(rows, tokens);
                EXPECT_TRUE(rows == tokens || rows % 16 == 0);
                const int64_t row_bytes = vocab * (type == "float32" ? 4 : 2);
                EXPECT_LE(rows * row_bytes, std::max<int64_t>(256 << 20, 16 * row_bytes));
            }
}

}  // namespace
}  // namespace q2::test
