#include "tests/kernels/cpu/op_test.h"

namespace q2::test {
namespace {

struct Result {
    Values out, lse;
};

/// The definition, in double.
Result reference(const Values& qkv, const AttentionShape& s) {
    const int64_t size = s.head_size, width = s.qkv_width(), group = s.heads / s.kv_heads;
    Result r{Values(size_t(s.tokens() * s.out_width())), Values(size_t(s.heads * s.tokens()))};
    for (int64_t piece = 0; piece < s.batch * s.heads; ++piece) {
        const int64_t b = piece / s.heads, h = piece % s.heads;
        const auto at = [&](int64_t slot, int64_t t) {
            return qkv.data() + (b * s.sequence + t) * width + slot * size;
        };
        for (int64_t t = 0; t < s.sequence; ++t) {
            Values p;
            double sum = 0;
            for (int64_t k = 0; k <= t; ++k) {
                double score = 0;
                for (int64_t c = 0; c < size; ++c) score += at(h, t)[c] * at(s.heads + h / group, k)[c];
                p.push_back(std::exp(score / std::sqrt(double(size))));
                sum += p.back();
            }
            r.lse[size_t(piece * s.sequence + t)] = std::log(sum);
            double* out = r.out.data() + (b * s.sequence + t) * s.out_width() + h * size;
            for (int64_t k = 0; k <= t; ++k)
                for (int64_t c = 0; c < size; ++c)
                    out[c] += p[size_t(k)] / sum * at(s.heads + s.kv_heads + h / group, k)[c];
        }
    }
    return r;
}

struct Pass {
    Array qkv, dout, out, lse, dqkv;
    Amax amax{0xffffffffu};

    explicit Pass(const AttentionShape& s, Dtype dtype = Dtype::f32)
        : qkv(Array::random(s.tokens(), s.qkv_width(), 1, dtype)),
          dout(Array::random(s.tokens(), s.out_width(), 2, dtype)),
          out(s.tokens(), s.out_width(), dtype),
          lse(s.heads * s.batch, s.sequence),
          dqkv(s.tokens(), s.qkv_width(), dtype) {
        OpContext forward(cpu::attention_scratch(s)), backward(cpu::attention_scratch(s));
        cpu::attention_forward(forward, out, lse, qkv, s, &amax);
        cpu::attention_backward(backward, dqkv, dout, out, lse, qkv, s);
    }
};

class Attention : public testing::TestWithParam<AttentionShape> {};

TEST_P(Attention, ForwardEqualsReference) {
    const AttentionShape s = GetParam();
    const Pass run(s);
    const Result want = reference(run.qkv.values(), s);
    expect_close(run.out, want.out, 3e-6, "out");
    expect_close(run.lse, want.lse, 3e-6, "lse");
    EXPECT_EQ(run.amax.bits, amax_bits(run.out));
}

TEST_P(Attention, BackwardEqualsDifferences) {
    const AttentionShape s = GetParam();
    const Pass run(s);
    const Values dout = run.dout.values();
    const auto loss = [&](const Values& x) { return dot(reference(x, s).out, dout); };
    // About 300 elements, whatever the shape: an odd stride, so that every column has its turn.
    const size_t stride = size_t(run.qkv.size() / 300) | 1;
    expect_gradient(run.dqkv, run.qkv.values(), loss, 2e-5, "dqkv", stride);
}

TEST_P(Attention, Bfloat16IsFloat32Rounded) {
    const AttentionShape s = GetParam();
    const Pass run(s), rounded(s, Dtype::bf16);
    expect_close(rounded.out, run.out.values(), 0x1p-8, "out");
    expect_close(rounded.lse, run.lse.values(), 1e-5, "lse");
    expect_close(rounded.dqkv, run.dqkv.values(), 0x1p-6, "dqkv");
    EXPECT_EQ(rounded.amax.bits, amax_bits(rounded.out));
}

// The last two cross the tile of 64 query rows: with a part of a tile, and at its edge.
INSTANTIATE_TEST_SUITE_P(Shapes, Attention,
                         testing::Values(AttentionShape{1, 1, 4, 2, 16}, AttentionShape{3, 1, 4, 2, 64},
                                         AttentionShape{3, 17, 4, 2, 16}, AttentionShape{1, 17, 4, 2, 64},
                                         AttentionShape{2, 5, 3, 3, 7}, AttentionShape{1, 131, 4, 1, 8},
                                         AttentionShape{1, 64, 2, 2, 16}));

TEST(Attention, LargeScoresStayFinite) {
    const AttentionShape s{1, 17, 2, 1, 16};
    Array qkv = Array::random(17, s.qkv_width(), 1), out(17, s.out_width()), lse(2, 17);
    for (int64_t i = 0; i < qkv.size(); ++i) qkv.set(i, 30 * qkv[i]);
    OpContext ctx(cpu::attention_scratch(s));
    cpu::attention_forward(ctx, out, lse, qkv, s, nullptr);
    for (int64_t i = 0; i < out.size(); ++i) ASSERT_TRUE(std::isfinite(out[i])) << i;
}

TEST(Attention, TheFutureIsNotSeen) {
    const AttentionShape s{2, 70, 2, 1, 8};
    const Pass run(s);
    Array qkv = run.qkv, out(s.tokens(), s.out_width()), lse(4, 70);
    const int64_t from = 30 * s.qkv_width(), end = 70 * s.qkv_width();
    for (int64_t i = from; i < end; ++i) qkv.set(i, -2 * qkv[i]);  // of the first sequence, from t = 30 on
    OpContext ctx(cpu::attention_scratch(s));
    cpu::attention_forward(ctx, out, lse, qkv, s, nullptr);
    for (int64_t i = 0; i < 30 * s.out_width(); ++i) ASSERT_EQ(out[i], run.out[i]) << i;
    for (int64_t i = 70 * s.out_width(); i < out.size(); ++i) ASSERT_EQ(out[i], run.out[i]) << i;
    EXPECT_NE(out[30 * s.out_width()], run.out[30 * s.out_width()]);
}

TEST(Attention, NanReachesOutputAndAmax) {
    const AttentionShape s{1, 20, 2, 1, 8};
    Array qkv = Array::random(20, s.qkv_width(), 1), out(20, s.out_width()), lse(2, 20);
    qkv.set(19 * s.qkv_width(), std::nan(""));
    Amax amax{};
    OpContext ctx(cpu::attention_scratch(s));
    cpu::attention_forward(ctx, out, lse, qkv, s, &amax);
    EXPECT_TRUE(std::isnan(out[19 * s.out_width()]));
    EXPECT_TRUE(std::isnan(float_of(amax.bits)));
}

TEST(Attention, ThreadsDoNotChangeBits) {
    expect_same_bits_on_two_threads([] {
        const Pass run({3, 131, 4, 2, 16});
        return std::vector<Array>{run.out, run.lse, run.dqkv, Array::ids({int32_t(run.amax.bits)})};
    });
}

}  // namespace
}  // namespace q2::test
