#include "tests/kernels/cpu/op_test.h"

namespace q2::test {
namespace {

constexpr int64_t kVocab = 37, kWidth = 19;

std::vector<int32_t> some_ids(size_t count) {
    std::mt19937 generator(3);
    std::vector<int32_t> ids(count);
    for (int32_t& id : ids) id = int32_t(generator() % kVocab);
    return ids;
}

TEST(Embedding, ForwardGathersRows) {
    for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
        const std::vector<int32_t> ids = some_ids(51);
        Array table = Array::random(kVocab, kWidth, 1), rows = Array::ids(ids), out(51, kWidth, dtype);
        OpContext ctx;
        cpu::embedding_forward(ctx, out, table, rows);
        for (size_t n = 0; n < ids.size(); ++n)
            for (int64_t c = 0; c < kWidth; ++c)
                ASSERT_EQ(out[int64_t(n) * kWidth + c], table[ids[n] * kWidth + c]) << n << " " << c;
    }
}

Array backward(const std::vector<int32_t>& ids, Dtype dtype) {
    const int64_t tokens = int64_t(ids.size());
    Array dtable = Array::random(kVocab, kWidth, 2), dout = Array::random(tokens, kWidth, 3, dtype);
    Array rows = Array::ids(ids);
    OpContext ctx(cpu::embedding_backward_scratch(tokens, kVocab));
    cpu::embedding_backward(ctx, dtable, dout, rows);
    return dtable;
}

/// Repeated ids are summed onto what was there in the order of their positions, so equality is exact.
TEST(Embedding, BackwardSumsRepeatedIdsInOrder) {
    std::vector<int32_t> ids = some_ids(200);
    std::fill(ids.begin() + 50, ids.begin() + 120, 7);
    ids[0] = 0, ids[199] = kVocab - 1;
    for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
        const Array dtable = backward(ids, dtype), dout = Array::random(200, kWidth, 3, dtype);
        Array want = Array::random(kVocab, kWidth, 2);
        for (int64_t n = 0; n < 200; ++n)
            for (int64_t c = 0; c < kWidth; ++c) {
                const int64_t at = ids[size_t(n)] * kWidth + c;
                want.set(at, float(want[at]) + float(dout[n * kWidth + c]));
            }
        EXPECT_EQ(dtable.bytes(), want.bytes());
    }
}

TEST(Embedding, RefusesIdsOutsideTheTable) {
    Array table = Array::random(kVocab, kWidth, 1), out(2, kWidth);
    OpContext ctx;
    for (int32_t bad : {-1, int32_t(kVocab)}) {
        Array ids = Array::ids({0, bad});
        EXPECT_THROW(cpu::embedding_forward(ctx, out, table, ids), Error) << bad;
    }
}

TEST(Embedding, ThreadsDoNotChangeBits) {
    const std::vector<int32_t> ids = some_ids(500);
    expect_same_bits_on_two_threads([&] { return std::vector<Array>{backward(ids, Dtype::f32)}; });
}

}  // namespace
}  // namespace q2::test
