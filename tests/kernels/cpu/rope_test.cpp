#include "tests/kernels/cpu/op_test.h"

namespace q2::test {
namespace {

Array angle_table(int64_t sequence, int64_t size) {
    Array table(sequence, size);
    for (int64_t t = 0; t < sequence; ++t)
        for (int64_t i = 0; i < size / 2; ++i) {
            const double angle = double(t) * std::pow(10000.0, -2.0 * double(i) / double(size));
            table.set(t * size + i, std::cos(angle));
            table.set(t * size + size / 2 + i, std::sin(angle));
        }
    return table;
}

/// Hugging Face's form: x * cos + rotate_half(x) * sin.
Values reference(const Values& qkv, const Array& table, const AttentionShape& s) {
    Values out = qkv;
    const int64_t size = s.head_size, half = size / 2;
    for (int64_t n = 0; n < s.tokens(); ++n)
        for (int64_t head = 0; head < s.heads + s.kv_heads; ++head)
            for (int64_t i = 0; i < size; ++i) {
                const int64_t at = n * s.qkv_width() + head * size, row = n % s.sequence * size;
                const double turned = i < half ? -qkv[size_t(at + i + half)] : qkv[size_t(at + i - half)];
                out[size_t(at + i)] =
                    qkv[size_t(at + i)] * table[row + i % half] + turned * table[row + half + i % half];
            }
    return out;
}

Array apply(Array qkv, const AttentionShape& s, Direction direction) {
    Array table = angle_table(s.sequence, s.head_size);
    OpContext ctx;
    cpu::rope(ctx, qkv, table, s, direction);
    return qkv;
}

class Rope : public testing::TestWithParam<AttentionShape> {};

TEST_P(Rope, ForwardEqualsReference) {
    const AttentionShape s = GetParam();
    const Array qkv = Array::random(s.tokens(), s.qkv_width(), 1);
    const Values want = reference(qkv.values(), angle_table(s.sequence, s.head_size), s);
    expect_close(apply(qkv, s, Direction::forward), want, 1e-6, "qkv");
    expect_close(apply(qkv.as(Dtype::bf16), s, Direction::forward), want, 0x1p-8, "bf16 qkv");
}

TEST_P(Rope, BackwardEqualsDifferences) {
    const AttentionShape s = GetParam();
    const Array table = angle_table(s.sequence, s.head_size);
    const Array x = Array::random(s.tokens(), s.qkv_width(), 1),
                dout = Array::random(s.tokens(), s.qkv_width(), 2);
    const auto loss = [&](const Values& v) { return dot(reference(v, table, s), dout.values()); };
    expect_gradient(apply(dout, s, Direction::backward), x.values(), loss, 1e-5, "dqkv", 7);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Rope,
                         testing::Values(AttentionShape{1, 1, 4, 2, 16}, AttentionShape{3, 17, 4, 2, 16},
                                         AttentionShape{1, 17, 3, 1, 6}));

TEST(Rope, ThreadsDoNotChangeBits) {
    const AttentionShape s{3, 17, 4, 2, 16};
    const Array qkv = Array::random(s.tokens(), s.qkv_width(), 1, Dtype::bf16);
    expect_same_bits_on_two_threads([&] { return std::vector<Array>{apply(qkv, s, Direction::forward)}; });
}

}  // namespace
}  // namespace q2::test
