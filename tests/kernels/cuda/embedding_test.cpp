// Embedding rows and their gradients on the GPU against the CPU.
#include "tests/support/both_backends.h"

namespace q2::test {
namespace {

class CudaEmbedding : public BothBackends {
  protected:
    void check(Dtype dtype, int64_t tokens, int64_t vocab, int64_t width) {
        const Floats table = normals(vocab * width), d = normals(tokens * width);
        std::vector<int32_t> ids = integers(tokens, 0, int32_t(vocab - 1));
        for (int64_t i = 0; i < tokens; i += 3) ids[size_t(i)] = ids[0];  // one token is frequent
        compare(concat(tokens, " tokens, vocabulary ", vocab, ", width ", width), tolerance_of(dtype),
                [&](Context& ctx) {
                    const LentScratch scratch(ctx, ctx.ops->embedding_backward_scratch(tokens, vocab));
                    const DeviceTensor weights(ctx, vocab, width, table), gradient(ctx, vocab, width, table);
                    const DeviceTensor id(ctx, tokens, 1, ids), out(ctx, dtype, tokens, width);
                    const DeviceTensor dout = tensor_of(ctx, dtype, tokens, width, d);
                    ctx.ops->embedding_forward(ctx, out, weights, id);
                    ctx.ops->embedding_backward(ctx, gradient, dout, id);
                    return std::vector<Floats>{out.floats(), gradient.floats()};
                });
    }
};

TEST_F(CudaEmbedding, EqualsTheCpu) {
    for (const Dtype dtype : kFloatTypes) {
        check(dtype, 1, 5, 128);
        check(dtype, 17, 320, 640);
        check(dtype, 511, 50257, 16);
        check(dtype, 2049, 7, 12);
        check(dtype, 4097, 300, 264);
    }
}

TEST_F(CudaEmbedding, SortsManyTokens) { check(Dtype::bf16, 40000, 30000, 8); }

}  // namespace
}  // namespace q2::test
