#include "tests/kernels/cpu/op_test.h"

namespace q2::test {
namespace {

constexpr float kEps = 1e-3f;

struct Case {
    int64_t rows, width;
    bool branch;
};

Values add(Values a, const Values& b) {
    for (size_t i = 0; i < b.size(); ++i) a[i] += b[i];
    return a;
}

Values reference(const Values& sum, const Values& weight) {
    const size_t width = weight.size();
    Values out(sum.size());
    for (size_t row = 0; row < sum.size() / width; ++row) {
        double squares = 0;
        for (size_t c = 0; c < width; ++c) squares += sum[row * width + c] * sum[row * width + c];
        const double rstd = 1 / std::sqrt(squares / double(width) + double(kEps));
        for (size_t c = 0; c < width; ++c) out[row * width + c] = sum[row * width + c] * rstd * weight[c];
    }
    return out;
}

struct Forward {
    Array residual, branch, weight, out, rstd, sum;
    Amax amax{};

    Forward(const Case& c, Dtype res, Dtype act)
        : residual(Array::random(c.rows, c.width, 1, res)),
          branch(Array::random(c.rows, c.width, 2, act)),
          weight(Array::random(1, c.width, 3)),
          out(c.rows, c.width, act),
          rstd(c.rows, 1),
          sum(c.rows, c.width, res) {
        OpContext ctx;
        cpu::residual_rmsnorm_forward(ctx, out, rstd, sum, residual, c.branch ? branch.tensor() : Tensor{},
                                      weight, kEps, &amax);
    }
};

struct Backward {
    Array dsum, dbranch, dweight;

    /// dsum and dweight start from random values (seeds 4 and 6); dout has seed 5.
    Backward(Forward& f, const Case& c, bool accumulate, Dtype res, Dtype act)
        : dsum(accumulate ? Array::random(c.rows, c.width, 4, res) : Array(c.rows, c.width, res)),
          dbranch(c.rows, c.width, act),
          dweight(Array::random(1, c.width, 6)) {
        Array dout = Array::random(c.rows, c.width, 5, act);
        OpContext ctx(cpu::residual_rmsnorm_backward_scratch(c.rows, c.width));
        cpu::residual_rmsnorm_backward(ctx, dsum, accumulate, dbranch, dweight, dout, f.sum, f.rstd,
                                       f.weight);
    }
};

class RmsNorm : public testing::TestWithParam<Case> {};

TEST_P(RmsNorm, ForwardEqualsReference) {
    const Case c = GetParam();
    Forward f(c, Dtype::f32, Dtype::f32);
    const Values sum = c.branch ? add(f.residual.values(), f.branch.values()) : f.residual.values();
    expect_close(f.sum, sum, 1e-6, "sum");
    expect_close(f.out, reference(sum, f.weight.values()), 2e-6, "out");
    EXPECT_EQ(f.amax.bits, amax_bits(f.out));
}

TEST_P(RmsNorm, BackwardEqualsDifferences) {
    const Case c = GetParam();
    Forward f(c, Dtype::f32, Dtype::f32);
    const Values dout = Array::random(c.rows, c.width, 5).values(), sum = f.sum.values();
    const Values direct = Array::random(c.rows, c.width, 4).values(), weight = f.weight.values();
    for (bool accumulate : {false, true}) {
        const Backward b(f, c, accumulate, Dtype::f32, Dtype::f32);
        const auto of_sum = [&](const Values& x) {
            return dot(reference(x, weight), dout) + (accumulate ? dot(x, direct) : 0);
        };
        expect_gradient(b.dsum, sum, of_sum, 1e-5, "dsum");
        EXPECT_EQ(b.dbranch.bytes(), b.dsum.bytes());
        const Values before = Array::random(1, c.width, 6).values();
        const auto of_weight = [&](const Values& w) { return dot(reference(sum, w), dout) + dot(w, before); };
        expect_gradient(b.dweight, weight, of_weight, 1e-5, "dweight");
    }
}

TEST_P(RmsNorm, Bfloat16IsFloat32Rounded) {
    const Case c = GetParam();
    Forward f(c, Dtype::f32, Dtype::f32);
    for (Dtype res : {Dtype::f32, Dtype::bf16}) {
        Forward g(c, res, Dtype::bf16);
        expect_close(g.sum, f.sum.values(), 0x1p-8, "sum");
        expect_close(g.out, f.out.values(), 0x1p-6, "out");
        EXPECT_EQ(g.amax.bits, amax_bits(g.out));
        const Backward b(f, c, true, Dtype::f32, Dtype::f32), d(g, c, true, res, Dtype::bf16);
        expect_close(d.dsum, b.dsum.values(), 0x1p-6, "dsum");
        expect_close(d.dbranch, d.dsum.values(), 0x1p-8, "dbranch");
        expect_close(d.dweight, b.dweight.values(), 0.1, "dweight");
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, RmsNorm,
                         testing::Values(Case{1, 1, false}, Case{3, 17, true}, Case{51, 48, true},
                                         Case{131, 7, false}));

TEST(RmsNorm, SumMayBeTheResidual) {
    const Case c{51, 48, true};
    Forward f(c, Dtype::f32, Dtype::f32);
    Array residual = f.residual, out(51, 48), rstd(51, 1);
    OpContext ctx;
    cpu::residual_rmsnorm_forward(ctx, out, rstd, residual, residual, f.branch, f.weight, kEps, nullptr);
    EXPECT_EQ(out.bytes(), f.out.bytes());
    EXPECT_EQ(residual.bytes(), f.sum.bytes());
}

TEST(RmsNorm, NanReachesOutputAndAmax) {
    Array residual = Array::random(40, 16, 1), weight = Array::random(1, 16, 2), out(40, 16), rstd(40, 1);
    residual.set(33 * 16 + 5, std::nan(""));
    Amax amax{};
    OpContext ctx;
    cpu::residual_rmsnorm_forward(ctx, out, rstd, residual, residual, {}, weight, kEps, &amax);
    EXPECT_TRUE(std::isnan(out[33 * 16]));
    EXPECT_TRUE(std::isnan(float_of(amax.bits)));
}

TEST(RmsNorm, ThreadsDoNotChangeBits) {
    const Case c{300, 40, true};
    expect_same_bits_on_two_threads([&] {
        Forward f(c, Dtype::f32, Dtype::bf16);
        Backward b(f, c, false, Dtype::f32, Dtype::bf16);
        return std::vector<Array>{f.out, f.sum, f.rstd, b.dsum, b.dbranch, b.dweight};
    });
}

}  // namespace
}  // namespace q2::test
