// The quantising slots: against NUMERICS.md written once more, their error on normal deviates, and what they
// promise of sources, parts, amax, non-finite values and draws.
#include <set>

#include "tests/kernels/cpu/op_test.h"
#include "tests/support/reference_quantizer.h"

namespace q2::test {
namespace {

using Floats = std::vector<float>;

QuantSpec nearest(Rule rule, Grid grid = Grid::block) {
    return {.rounding = Rounding::nearest, .rule = rule, .grid = grid};
}
QuantSpec stochastic(Rule rule = Rule::six) { return {.rounding = Rounding::stochastic, .rule = rule}; }
QuantSpec eden(int correction, Range range = Range::two_pass) {
    return {.rounding = Rounding::ms_eden, .correction = correction, .range = range};
}

std::vector<QuantSpec> all_specs() {
    std::vector<QuantSpec> specs = {eden(128), eden(16), eden(16, Range::post_hoc)};
    for (const Rule rule : {Rule::six, Rule::mse, Rule::mae, Rule::absmax}) specs.push_back(stochastic(rule));
    for (const Rule rule : {Rule::six, Rule::mse, Rule::mae, Rule::absmax, Rule::search})
        for (const Grid grid : {Grid::block, Grid::tile}) specs.push_back(nearest(rule, grid));
    return specs;
}

std::string name_of(const QuantSpec& s) {
    return concat("rounding ", int(s.rounding), ", rule ", int(s.rule), ", grid ", int(s.grid),
                  ", correction ", s.correction, ", range ", int(s.range));
}

Floats normals(int64_t count, uint32_t seed = 1) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    Floats x;
    for (int64_t i = 0; i < count; ++i) x.push_back(normal(generator));
    return x;
}

/// A quantised operand with all its parts, poisoned at first.
struct Operands {
    int64_t rows, inner;
    Array codes, scales, tensor_scale, dense;

    Operands(int64_t rows, int64_t inner, const QuantSpec& spec)
        : rows(rows),
          inner(inner),
          codes(rows, inner / 2, Dtype::u8),
          scales(spec.grid == Grid::tile ? rows / kBlock : rows, inner / kBlock, Dtype::u8),
          tensor_scale(1, 1),
          dense(rows, inner) {}

    Quantized view() { return {rows, inner, codes, scales, tensor_scale, dense}; }
    float s_t() const { return float(tensor_scale[0]); }
    int code(int64_t i) const { return codes.bytes()[size_t(i / 2)] >> (i % 2 * 4) & 15; }
    uint8_t scale(int64_t row, int64_t block) const {
        const int64_t rows_a_scale = codes.size() / scales.size() / (kBlock / 2);
        return scales.bytes()[size_t(row / rows_a_scale * (inner / kBlock) + block)];
    }
    /// Decoded from codes and scales.
    Floats values() const {
        Floats out;
        for (int64_t i = 0; i < rows * inner; ++i)
            out.push_back(e2m1_value(code(i)) * (e4m3_value(scale(i / inner, i % inner / kBlock)) * s_t()));
        return out;
    }
    std::vector<std::vector<unsigned char>> parts() const {
        return {codes.bytes(), scales.bytes(), tensor_scale.bytes(), dense.bytes()};
    }
};

const StepState kState = {.seed = 0x0123456789abcdefull, .step = 7, .micro_batch = 3};
const Address kAddress = {.state = &kState, .layer = 5, .gemm = kWgrad, .operand = 1};
const DrawAddress kDraws = {0x0123456789abcdefull, 7, 3, 5, 2, 1};

/// The slot on a source, into `parts`.
void run(const Quantized& parts, const Operand& source, const QuantSpec& spec, const Rotation& rotation = {},
         const Address& address = kAddress, const Amax* amax = nullptr) {
    OpContext ctx(cpu_ops()->quantize_scratch(parts.rows, parts.inner));
    cpu_ops()->quantize(ctx, parts, source, amax, spec, rotation, address);
}

Operands quantized(const Floats& x, int64_t rows, int64_t inner, const QuantSpec& spec,
                   const Rotation& rotation = {}, const Address& address = kAddress) {
    Array source = Array::of(Values(x.begin(), x.end()), rows, int64_t(x.size()) / rows);
    Operands out(rows, inner, spec);
    run(out.view(), {.dense = source}, spec, rotation, address);
    return out;
}

// ---- Against the reference ----

void expect_reference(Operands& got, const ReferenceOperand& want, const std::string& what) {
    ASSERT_EQ(bits_of(got.s_t()), bits_of(want.tensor_scale)) << what;
    for (int64_t i = 0; i < got.rows * got.inner; ++i) {
        const uint8_t scale = want.scales[size_t(i / kBlock)], code = want.codes[size_t(i)];
        ASSERT_EQ(got.scale(i / got.inner, i % got.inner / kBlock), scale) << what << ", element " << i;
        ASSERT_EQ(got.code(i), code) << what << ", element " << i;
        ASSERT_EQ(bits_of(float(got.dense[i])), bits_of(e2m1_value(code) * e4m3_value(scale))) << what;
    }
}

/// (rows, source_inner), padded with zeros to (rows, inner).
struct Sizes {
    int64_t rows, source_inner, inner;
    Rotation rotation;
};

void check_reference(const QuantSpec& spec, const Sizes& s, Dtype dtype, bool stored_transposed) {
    Floats x = normals(s.rows * s.source_inner, 3);
    if (dtype == Dtype::bf16)
        for (float& v : x) v = to_float(to_bf16(v));
    const Floats flipped = transposed(x, s.rows, s.source_inner, s.rows);
    const Floats padded = transposed(flipped, s.source_inner, s.rows, s.inner);
    const Floats& stored = stored_transposed ? flipped : x;
    Array source =
        Array::of(Values(stored.begin(), stored.end()), stored_transposed ? s.source_inner : s.rows,
                  stored_transposed ? s.rows : s.source_inner, dtype);
    Operands got(s.rows, s.inner, spec);
    run(got.view(), {.dense = source, .transposed = stored_transposed}, spec, s.rotation);
    expect_reference(got, reference_quantize(padded, s.rows, s.inner, spec, s.rotation, {kDraws, kDraws}),
                     concat(name_of(spec), "; ", s.rows, " x ", s.source_inner, ", rotation ",
                            s.rotation.size, stored_transposed ? ", transposed" : ""));
}

TEST(Quantize, EverySchemeIsNumericsWrittenOnceMore) {
    for (const QuantSpec& spec : all_specs())
        for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
            for (const bool stored_transposed : {false, true}) {
                check_reference(spec, {48, 256, 256, {}}, dtype, stored_transposed);
                check_reference(spec, {16, 100, 128, {.size = 128, .rounds = 2}}, dtype, stored_transposed);
                if (testing::Test::HasFatalFailure()) return;
            }
}

TEST(Quantize, OddRowsRotationsAndPaddingToo) {
    for (const QuantSpec& spec : all_specs())
        for (const int64_t rows : {1, 17}) {
            if (spec.grid == Grid::tile) continue;
            for (const int size : {16, 32, 64, 128})
                check_reference(spec, {rows, 130, 256, {.size = size}}, Dtype::f32, size == 32);
            check_reference(spec, {rows, 130, 256, {.size = 64, .redrawn = false}}, Dtype::f32, true);
            if (testing::Test::HasFatalFailure()) return;
        }
}

// ---- Quality ----

struct Floor {
    const char* name;
    QuantSpec spec;
    Rotation rotation;
    double low, high;
};

TEST(Quantize, ErrorOnNormalDeviatesIsThePapers) {
    constexpr int64_t n = 1024;
    const Floats x = normals(n * n, 11);
    const Rotation once{.size = 128}, twice{.size = 128, .rounds = 2};
    const Floor floors[] = {{"RTN", nearest(Rule::six), {}, 0.0089, 0.0092},
                            {"mse", nearest(Rule::mse), {}, 0.0073, 0.0077},
                            {"search", nearest(Rule::search), {}, 0.0064, 0.0068},
                            {"SR", stochastic(), {}, 0.0228, 0.0242},
                            {"MS-EDEN", eden(128), once, 0.0094, 0.0100},
                            {"plus", eden(16), twice, 0.0091, 0.0096},
                            {"post_hoc", eden(16, Range::post_hoc), once, 0.0091, 0.0096}};
    for (const Floor& f : floors) {
        const Operands got = quantized(x, n, n, f.spec, f.rotation);
        const Floats z = reference_rotate(x, f.rotation, kDraws), value = got.values();
        double error = 0, power = 0;
        for (size_t i = 0; i < z.size(); ++i) {
            error += (double(z[i]) - value[i]) * (double(z[i]) - value[i]);
            power += double(z[i]) * z[i];
        }
        EXPECT_GE(error / power, f.low) << f.name;
        EXPECT_LE(error / power, f.high) << f.name;
    }
}

// ---- Sources ----

/// Quantising codes is quantising their decoded values, as they lie or transposed.
TEST(Quantize, CodesStandForTheirValues) {
    constexpr int64_t rows = 48, inner = 256;
    for (const QuantSpec& saved :
         {nearest(Rule::mse), nearest(Rule::six, Grid::tile), nearest(Rule::search)}) {
        Operands source = quantized(normals(rows * inner), rows, inner, saved);
        const Quantized codes = source.view();
        const Floats values = source.values(), flipped = transposed(values, rows, inner, 128);
        for (const QuantSpec& spec : all_specs())
            for (const Rotation& rotation : {Rotation{}, Rotation{.size = 64}}) {
                Operands got(rows, inner, spec), got_flipped(inner, 128, spec);  // 48 rows become 128
                run(got.view(), {.q = &codes}, spec, rotation);
                run(got_flipped.view(), {.q = &codes, .transposed = true}, spec, rotation);
                EXPECT_EQ(got.parts(), quantized(values, rows, inner, spec, rotation).parts())
                    << name_of(spec);
                EXPECT_EQ(got_flipped.parts(), quantized(flipped, inner, 128, spec, rotation).parts())
                    << name_of(spec);
            }
    }
}

TEST(Quantize, KeepingCodesIsExact) {
    constexpr int64_t rows = 32, inner = 64;
    for (const Grid grid : {Grid::block, Grid::tile}) {
        Operands source = quantized(normals(rows * inner), rows, inner, nearest(Rule::six, grid));
        const Quantized codes = source.view();
        for (const bool flip : {false, true}) {
            Operands kept(flip ? inner : rows, flip ? rows : inner, {});
            run(kept.view(), {.q = &codes, .transposed = flip}, {});
            EXPECT_EQ(kept.s_t(), source.s_t());
            for (int64_t r = 0; r < rows; ++r)
                for (int64_t k = 0; k < inner; ++k)
                    ASSERT_EQ(kept.dense[flip ? k * rows + r : r * inner + k], source.dense[r * inner + k]);
        }
        Operands rotated(rows, inner, {});  // then no longer codes: `value` under the rotation, scale 1
        run(rotated.view(), {.q = &codes}, {}, {.size = 64});
        const Floats want = reference_rotate(source.values(), {.size = 64}, kDraws);
        EXPECT_EQ(rotated.s_t(), 1.0f);
        EXPECT_EQ(rotated.dense.values(), Values(want.begin(), want.end()));
    }
}

TEST(Quantize, KeepingAMatrixIsIt) {
    const Floats x = normals(17 * 40);
    const Operands kept = quantized(x, 17, 48, {});
    EXPECT_EQ(kept.s_t(), 1.0f);
    for (int64_t r = 0; r < 17; ++r)
        for (int64_t k = 0; k < 48; ++k)
            ASSERT_EQ(float(kept.dense[r * 48 + k]), k < 40 ? x[size_t(r * 40 + k)] : 0.0f);
}

// ---- Parts and amax ----

TEST(Quantize, PartsThatAreNotWantedChangeNothing) {
    constexpr int64_t rows = 32, inner = 256;
    const Floats x = normals(rows * inner);
    Array source = Array::of(Values(x.begin(), x.end()), rows, inner);
    for (const QuantSpec& spec : all_specs()) {
        const Operands all = quantized(x, rows, inner, spec);
        Operands codes(rows, inner, spec), dense(rows, inner, spec);
        Quantized only_codes = codes.view(), only_dense = dense.view();
        only_codes.dense = {};
        only_dense.codes = {};
        only_dense.scales = {};
        // Without scales there is nothing to read the grid from: the spec says it.
        run(only_codes, {.dense = source}, spec);
        run(only_dense, {.dense = source}, spec);
        EXPECT_EQ(codes.codes.bytes(), all.codes.bytes()) << name_of(spec);
        EXPECT_EQ(codes.scales.bytes(), all.scales.bytes()) << name_of(spec);
        EXPECT_EQ(dense.dense.bytes(), all.dense.bytes()) << name_of(spec);
        for (const Operands* part : {&codes, &dense}) EXPECT_EQ(part->s_t(), all.s_t()) << name_of(spec);
    }
}

TEST(Quantize, AmaxGivenOrComputedIsTheSame) {
    constexpr int64_t rows = 32, inner = 256;
    const Floats x = normals(rows * inner);
    Array source = Array::of(Values(x.begin(), x.end()), rows, inner);
    const Amax right{amax_bits(source)}, doubled{bits_of(2 * float_of(right.bits))};
    for (const QuantSpec& spec : all_specs()) {
        const Operands want = quantized(x, rows, inner, spec);
        Operands got(rows, inner, spec), twice(rows, inner, spec);
        run(got.view(), {.dense = source}, spec, {}, kAddress, &right);
        EXPECT_EQ(got.parts(), want.parts()) << name_of(spec);
        run(twice.view(), {.dense = source}, spec, {}, kAddress, &doubled);  // so it is really read
        const float factor = spec.range == Range::two_pass ? 2.0f : 1.0f;    // post_hoc has no use for it
        EXPECT_EQ(twice.s_t(), factor * want.s_t()) << name_of(spec);
        const Rotation rotation{.size = 128};  // it is of the unrotated source, and a rotation changes it
        run(got.view(), {.dense = source}, spec, rotation, kAddress, &doubled);
        EXPECT_EQ(got.parts(), quantized(x, rows, inner, spec, rotation).parts()) << name_of(spec);
    }
}

// ---- Values that are not finite, and zeros ----

TEST(Quantize, ANonFiniteValueReachesEveryValue) {
    constexpr int64_t rows = 32, inner = 128;
    for (const QuantSpec& spec : all_specs())
        for (const Rotation& rotation : {Rotation{}, Rotation{.size = 128, .rounds = 2}})
            for (const float bad : {float(INFINITY), -float(INFINITY), std::nanf(""), -std::nanf("")}) {
                Floats x = normals(rows * inner);
                x[size_t(rows * inner / 2 + 77)] = bad;
                const Operands got = quantized(x, rows, inner, spec, rotation);
                for (int64_t i = 0; i < rows * inner; ++i)
                    ASSERT_FALSE(std::isfinite(float(got.dense[i]) * got.s_t()))
                        << name_of(spec) << " of " << bad << ", element " << i;
            }
}

TEST(Quantize, ANonFiniteValueSurvivesKeeping) {
    for (const float bad : {float(INFINITY), std::nanf("")}) {
        Floats x = normals(256);
        x[200] = bad;
        EXPECT_FALSE(std::isfinite(quantized(x, 2, 128, {}).dense[200]));
        EXPECT_FALSE(std::isfinite(quantized(x, 2, 128, {}, {.size = 16}).dense[200]));
    }
}

TEST(Quantize, ZerosStayZerosAndKeepTheirSigns) {
    for (const QuantSpec& spec : all_specs())
        for (const float tiny : {0.0f, 1e-38f}) {
            Floats x(32 * 128, tiny);
            for (size_t i = 0; i < x.size(); i += 3) x[i] = -tiny;
            const Operands got = quantized(x, 32, 128, spec);
            EXPECT_EQ(got.s_t(), 1.0f) << name_of(spec);
            for (size_t i = 0; i < x.size(); ++i) {
                ASSERT_EQ(got.code(int64_t(i)), i % 3 ? 0 : 8) << name_of(spec);
                ASSERT_EQ(got.scales.bytes()[i % got.scales.bytes().size()], 0) << name_of(spec);
            }
        }
}

// ---- Draws ----

/// Addresses that differ from kAddress in one part each.
struct OtherDraws {
    const char* what;
    StepState state;
    Address address;
};

std::vector<OtherDraws> other_draws() {
    std::vector<OtherDraws> others(7, {"", kState, kAddress});
    others[0].what = "seed", others[0].state.seed += 1;
    others[1].what = "seed's high half", others[1].state.seed += 1ull << 40;
    others[2].what = "step", others[2].state.step += 1;
    others[3].what = "micro-batch", others[3].state.micro_batch += 1;
    others[4].what = "layer", others[4].address.layer += 1;
    others[5].what = "gemm", others[5].address.gemm -= 1;
    others[6].what = "operand", others[6].address.operand = 0;
    for (OtherDraws& o : others) o.address.state = &o.state;
    return others;
}

TEST(QuantizeDraws, EveryPartOfTheAddressCounts) {
    constexpr int64_t rows = 16, inner = 256;
    const Floats x = normals(rows * inner);
    for (const QuantSpec& spec : {stochastic(), eden(128), eden(16, Range::post_hoc)})
        for (const OtherDraws& o : other_draws()) {
            EXPECT_NE(quantized(x, rows, inner, spec).parts(),
                      quantized(x, rows, inner, spec, {}, o.address).parts())
                << o.what << ", " << name_of(spec);
        }
}

TEST(QuantizeDraws, SignsAreSharedByTheOperandsAndByNothingElse) {
    const Floats x = normals(256);
    for (const int rounds : {1, 2})
        for (const OtherDraws& o : other_draws()) {
            const Rotation rotation{.size = 128, .rounds = rounds};
            const bool same = quantized(x, 2, 128, {}, rotation).parts()[3] ==
                              quantized(x, 2, 128, {}, rotation, o.address).parts()[3];
            EXPECT_EQ(same, o.address.operand != kAddress.operand) << o.what;
        }
}

TEST(QuantizeDraws, RowsAndPositionsDiffer) {
    constexpr int64_t rows = 64, inner = 256;
    Floats row = normals(16), x;
    for (int64_t i = 0; i < rows * inner; ++i) x.push_back(row[size_t(i % 16)]);  // one block everywhere
    const Operands got = quantized(x, rows, inner, stochastic());
    std::set<std::vector<int>> blocks;
    for (int64_t b = 0; b < rows * inner; b += 16) {
        std::vector<int> codes;
        for (int64_t i = 0; i < 16; ++i) codes.push_back(got.code(b + i));
        blocks.insert(codes);
    }
    EXPECT_GT(blocks.size(), 200u);  // of 1024; repeated draws would leave 64 or 16 kinds
}

TEST(QuantizeDraws, OnceAStepTakesTheFirstMicroBatchs) {
    constexpr int64_t rows = 16, inner = 256;
    const Floats x = normals(rows * inner);
    const Rotation rotation{.size = 128};
    DrawAddress zero = kDraws;
    zero.micro_batch = 0;
    for (const bool rounding : {false, true})
        for (const bool signs : {false, true}) {
            Address once = kAddress;
            once.rounding_once_a_step = rounding;
            once.signs_once_a_step = signs;
            Operands got = quantized(x, rows, inner, eden(128), rotation, once);
            expect_reference(got,
                             reference_quantize(x, rows, inner, eden(128), rotation,
                                                {rounding ? zero : kDraws, signs ? zero : kDraws}),
                             concat("once a step: rounding ", rounding, ", signs ", signs));
        }
}

TEST(QuantizeDraws, FixedSignsAreThoseOfStepZero) {
    const Floats x = normals(256);
    const Rotation fixed{.size = 128, .redrawn = false};
    for (const OtherDraws& o : other_draws()) {
        const bool same = quantized(x, 2, 128, {}, fixed).parts()[3] ==
                          quantized(x, 2, 128, {}, fixed, o.address).parts()[3];
        const std::string what = o.what;
        EXPECT_EQ(same, what == "step" || what == "micro-batch" || what == "operand") << what;
    }
}

// ---- The gradient's slot, and threads ----

TEST(QuantizeGradient, IsQuantizeOfBothOrientations) {
    constexpr int64_t tokens = 50, features = 128, padded = 128;
    const Floats e = normals(tokens * features);
    Array source = Array::of(Values(e.begin(), e.end()), tokens, features);
    const GemmSpec dgrad{{.size = 64}, eden(16), {}}, wgrad{{.size = 128}, stochastic(), {}};
    const Address rows_address{.state = &kState, .layer = 4, .gemm = kDgrad},
        columns_address{.state = &kState, .layer = 4, .gemm = kWgrad};
    Operands rows(tokens, features, dgrad.a), columns(features, padded, wgrad.a), want_rows = rows,
                                                                                  want_columns = columns;
    run(want_rows.view(), {.dense = source}, dgrad.a, dgrad.rotation, rows_address);
    run(want_columns.view(), {.dense = source, .transposed = true}, wgrad.a, wgrad.rotation, columns_address);
    for (const bool with_rows : {true, false})
        for (const bool with_columns : {true, false}) {
            Operands got_rows = rows, got_columns = columns;
            const Quantized r = got_rows.view(), c = got_columns.view();
            OpContext ctx(cpu_ops()->quantize_scratch(features, padded));
            cpu_ops()->quantize_gradient(ctx, with_rows ? &r : nullptr, with_columns ? &c : nullptr, source,
                                         dgrad, wgrad, rows_address, columns_address);
            EXPECT_EQ(got_rows.parts(), (with_rows ? want_rows : rows).parts());
            EXPECT_EQ(got_columns.parts(), (with_columns ? want_columns : columns).parts());
        }
}

TEST(Quantize, OneAndTwoThreadsGiveTheSameBits) {
    const Floats x = normals(208 * 256);
    for (const QuantSpec& spec : all_specs())
        expect_same_bits_on_two_threads([&] {
            const Operands out = quantized(x, 208, 256, spec, {.size = 32});
            return std::vector<Array>{out.codes, out.scales, out.tensor_scale, out.dense};
        });
}

}  // namespace
}  // namespace q2::test
