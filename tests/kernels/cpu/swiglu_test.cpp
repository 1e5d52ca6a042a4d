#include "tests/kernels/cpu/op_test.h"

namespace q2::test {
namespace {

Values reference(const Values& gate_up, int64_t rows, int64_t width) {
    Values out;
    for (int64_t row = 0; row < rows; ++row)
        for (int64_t c = 0; c < width; ++c) {
            const double g = gate_up[size_t(row * 2 * width + c)];
            out.push_back(g / (1 + std::exp(-g)) * gate_up[size_t(row * 2 * width + width + c)]);
        }
    return out;
}

struct Case {
    int64_t rows, width;
};

class SwiGlu : public testing::TestWithParam<Case> {};

Array forward(Array gate_up, Case c, Dtype dtype, Amax* amax) {
    Array out(c.rows, c.width, dtype);
    OpContext ctx;
    cpu::swiglu_forward(ctx, out, gate_up, amax);
    return out;
}

Array backward(Array gate_up, Case c, Dtype dtype) {
    Array dgate_up(c.rows, 2 * c.width, dtype), dout = Array::random(c.rows, c.width, 2, dtype);
    OpContext ctx;
    cpu::swiglu_backward(ctx, dgate_up, dout, gate_up);
    return dgate_up;
}

TEST_P(SwiGlu, ForwardEqualsReference) {
    const Case c = GetParam();
    const Array gate_up = Array::random(c.rows, 2 * c.width, 1);
    const Values want = reference(gate_up.values(), c.rows, c.width);
    for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
        Amax amax{0xffffffffu};
        const Array out = forward(gate_up.as(dtype), c, dtype, &amax);
        expect_close(out, want, dtype == Dtype::f32 ? 1e-6 : 0x1p-8, "out");
        EXPECT_EQ(amax.bits, amax_bits(out));
    }
}

TEST_P(SwiGlu, BackwardEqualsDifferences) {
    const Case c = GetParam();
    const Array gate_up = Array::random(c.rows, 2 * c.width, 1);
    const Values dout = Array::random(c.rows, c.width, 2).values();
    const auto loss = [&](const Values& x) { return dot(reference(x, c.rows, c.width), dout); };
    const Array gradient = backward(gate_up, c, Dtype::f32);
    expect_gradient(gradient, gate_up.values(), loss, 1e-5, "dgate_up");
    expect_close(backward(gate_up.as(Dtype::bf16), c, Dtype::bf16), gradient.values(), 0x1p-8, "bf16");
}

INSTANTIATE_TEST_SUITE_P(Shapes, SwiGlu, testing::Values(Case{1, 1}, Case{3, 37}, Case{51, 19}));

TEST(SwiGlu, LargeGatesStayFinite) {
    const Array gate_up = Array::of({-1e4, -200, -90, 90, 200, 1e4, 1, 1, 1, 1, 1, 1}, 1, 12);
    expect_close(forward(gate_up, {1, 6}, Dtype::f32, nullptr), {0, 0, 0, 90, 200, 1e4}, 1e-6, "out");
    const Array gradient = backward(gate_up, {1, 6}, Dtype::f32);
    for (int64_t i = 0; i < gradient.size(); ++i) EXPECT_TRUE(std::isfinite(gradient[i])) << i;
}

TEST(SwiGlu, GradientMayReplaceItsInput) {
    Array gate_up = Array::random(51, 38, 1), dout = Array::random(51, 19, 2);
    const Array apart = backward(gate_up, {51, 19}, Dtype::f32);
    OpContext ctx;
    cpu::swiglu_backward(ctx, gate_up, dout, gate_up);
    EXPECT_EQ(gate_up.bytes(), apart.bytes());
}

TEST(SwiGlu, NanReachesAmax) {
    Array gate_up = Array::random(40, 6, 1);
    gate_up.set(3 * 6 + 1, std::nan(""));
    Amax amax{};
    forward(gate_up, {40, 3}, Dtype::f32, &amax);
    EXPECT_TRUE(std::isnan(float_of(amax.bits)));
}

TEST(SwiGlu, ThreadsDoNotChangeBits) {
    const Array gate_up = Array::random(100, 38, 1, Dtype::bf16);
    expect_same_bits_on_two_threads([&] {
        Amax amax{};
        Array out = forward(gate_up, {100, 19}, Dtype::bf16, &amax);
        return std::vector<Array>{out, Array::ids({int32_t(amax.bits)}),
                                  backward(gate_up, {100, 19}, Dtype::bf16)};
    });
}

}  // namespace
}  // namespace q2::test
