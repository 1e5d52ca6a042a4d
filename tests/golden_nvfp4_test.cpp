// Every quantiser and rotation of every backend against the golden NVFP4 files, bit for bit.
#include "base/hadamard.h"
#include "base/nvfp4.h"
#include "tests/support/device.h"
#include "tests/support/golden.h"

namespace q2::test {
namespace {

/// One of the sets of a golden file (tests/golden/README.md): what it reads, by which rule.
struct GoldenSet {
    const char* name;
    QuantSpec spec;
    int rounds;  // rotations that its input has seen
};

std::vector<GoldenSet> golden_sets() {
    const auto nearest = [](Rule rule, Grid grid) {
        return QuantSpec{.rounding = Rounding::nearest, .rule = rule, .grid = grid};
    };
    const auto eden = [](int correction, Range range) {
        return QuantSpec{.rounding = Rounding::ms_eden, .correction = correction, .range = range};
    };
    return {{"rtn", nearest(Rule::six, Grid::block), 0},
            {"rtn_46_mse", nearest(Rule::mse, Grid::block), 0},
            {"rtn_46_mae", nearest(Rule::mae, Grid::block), 0},
            {"rtn_46_absmax", nearest(Rule::absmax, Grid::block), 0},
            {"rtn_search", nearest(Rule::search, Grid::block), 0},
            {"rtn_square", nearest(Rule::six, Grid::tile), 0},
            {"rtn_square_46_mse", nearest(Rule::mse, Grid::tile), 0},
            {"sr", {.rounding = Rounding::stochastic}, 0},
            {"ms_eden", eden(128, Range::two_pass), 1},
            {"ms_eden_plus", eden(16, Range::two_pass), 2},
            {"ms_eden_post_hoc", eden(16, Range::post_hoc), 1}};
}

/// An input of a golden file and its draws.
struct GoldenInput {
    const SafetensorsFile& file;
    std::string name;
    int64_t rows, inner;

    std::string key(const std::string& field) const { return name + "." + field; }
    bool has(const std::string& field) const { return file.contains(key(field)); }
    std::vector<float> floats(const std::string& field) const {
        return golden_values<float>(file, key(field));
    }
    /// The named draws on the backend; an input that has none of a kind has no set that reads them.
    DeviceTensor draws(Context& ctx, const std::string& field) const {
        const std::vector<float> values = has(field) ? floats(field) : std::vector<float>{0.0f};
        return DeviceTensor(ctx, 1, int64_t(values.size()), values);
    }
    std::vector<uint8_t> bytes(const std::string& field) const {
        return golden_values<uint8_t>(file, key(field));
    }
};

std::vector<GoldenInput> golden_inputs(const SafetensorsFile& file) {
    std::vector<GoldenInput> inputs;
    for (const auto& [key, entry] : file.tensors())
        if (key.ends_with(".x"))
            inputs.push_back({file, key.substr(0, key.size() - 2), entry.shape[0], entry.shape[1]});
    return inputs;
}

template <class T>
void expect_same_bits(const std::vector<T>& got, const std::vector<T>& want, const std::string& what) {
    ASSERT_EQ(got.size(), want.size()) << what;
    for (size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(std::memcmp(&got[i], &want[i], sizeof(T)), 0)
            << what << " differs first at element " << i << ": " << +got[i] << " instead of " << +want[i];
}

std::vector<uint8_t> unpack(const std::vector<uint8_t>& packed) {
    std::vector<uint8_t> codes;
    for (const uint8_t byte : packed) codes.push_back(byte & 15), codes.push_back(byte >> 4);
    return codes;
}

struct Result {
    std::vector<uint8_t> codes, scales;
    float tensor_scale;
    std::vector<float> dense;
};

/// The quantize slot on x with the input's own draws; it rotates by itself where `rotation` says so.
Result quantize_golden(Context& ctx, const GoldenInput& in, const std::vector<float>& x,
                       const QuantSpec& spec, const Rotation& rotation) {
    const int64_t scale_rows = spec.grid == Grid::tile ? in.rows / kBlock : in.rows;
    const DeviceTensor source(ctx, in.rows, in.inner, x);
    const DeviceTensor elements = in.draws(ctx, "uniform_element"), blocks = in.draws(ctx, "uniform_block");
    const DeviceTensor first = in.draws(ctx, "signs"), second = in.draws(ctx, "signs2");
    const DeviceTensor codes(ctx, Dtype::u8, in.rows, in.inner / 2),
        scales(ctx, Dtype::u8, scale_rows, in.inner / kBlock);
    const DeviceTensor s_t(ctx, Dtype::f32, 1, 1), dense(ctx, ctx.ops->dense_dtype, in.rows, in.inner);
    const auto at = [](const DeviceTensor& t) { return static_cast<const float*>(t.view().data); };
    const Draws draws{at(elements), at(blocks), at(first), at(second)};
    const LentScratch scratch(ctx, ctx.ops->quantize_scratch(in.rows, in.inner));
    const Quantized out{in.rows, in.inner, codes, scales, s_t, dense};
    ctx.ops->quantize(ctx, out, {.dense = source}, nullptr, spec, rotation, {.given = &draws});
    return {unpack(codes.values<uint8_t>()), scales.values<uint8_t>(), s_t.values<float>()[0],
            dense.floats()};
}

void expect_golden(const Result& got, const GoldenInput& in, const std::string& set) {
    const std::string what = in.name + "." + set;
    expect_same_bits(got.codes, in.bytes(set + ".codes"), what + ".codes");
    expect_same_bits(got.scales, in.bytes(set + ".scales"), what + ".scales");
    expect_same_bits({got.tensor_scale}, in.floats(set + ".tensor_scale"), what + ".tensor_scale");
    const int64_t rows_a_scale = int64_t(got.codes.size() / got.scales.size()) / kBlock;
    std::vector<float> dense, dequant;
    for (int64_t i = 0; i < in.rows * in.inner; ++i) {
        const int64_t row = i / in.inner, block = i % in.inner / kBlock;
        const float scale = e4m3_value(got.scales[size_t(row / rows_a_scale * (in.inner / kBlock) + block)]);
        dense.push_back(mul(e2m1_value(got.codes[size_t(i)]), scale));
        dequant.push_back(mul(e2m1_value(got.codes[size_t(i)]), mul(scale, got.tensor_scale)));
    }
    expect_same_bits(got.dense, dense, what + ", the dense operand");
    if (in.has(set + ".dequant")) expect_same_bits(dequant, in.floats(set + ".dequant"), what + ".dequant");
}

class GoldenNvfp4 : public testing::TestWithParam<const char*> {};

TEST_P(GoldenNvfp4, QuantisersGiveTheGoldenBits) {
    OPEN_BACKEND_OR_SKIP(backend, GetParam());
    SKIP_WITHOUT_GOLDEN("nvfp4");
    for (const std::string& path : golden_files("nvfp4")) {
        const SafetensorsFile file(path);
        for (const GoldenInput& in : golden_inputs(file))
            for (const GoldenSet& set : golden_sets()) {
                if (!in.has(std::string(set.name) + ".codes")) continue;
                const char* read = set.rounds == 0 ? "x" : set.rounds == 1 ? "rotated" : "rotated_twice";
                expect_golden(quantize_golden(backend->context(), in, in.floats(read), set.spec, {}), in,
                              set.name);
                if (HasFatalFailure()) return;
            }
    }
}

TEST_P(GoldenNvfp4, RotatingQuantisersGiveTheGoldenBits) {
    OPEN_BACKEND_OR_SKIP(backend, GetParam());
    SKIP_WITHOUT_GOLDEN("nvfp4");
    for (const std::string& path : golden_files("nvfp4")) {
        const SafetensorsFile file(path);
        for (const GoldenInput& in : golden_inputs(file))
            for (const GoldenSet& set : golden_sets()) {
                if (set.rounds == 0 || !in.has(std::string(set.name) + ".codes")) continue;
                const Rotation rotation{.size = int(in.floats("signs").size()), .rounds = set.rounds};
                expect_golden(quantize_golden(backend->context(), in, in.floats("x"), set.spec, rotation), in,
                              set.name);
                if (HasFatalFailure()) return;
            }
    }
}

INSTANTIATE_TEST_SUITE_P(Backends, GoldenNvfp4, testing::Values("cpu", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

// ---- The steps inside MS-EDEN, which no slot returns ----

TEST(GoldenNvfp4Steps, RotationsGiveTheGoldenBits) {
    SKIP_WITHOUT_GOLDEN("nvfp4");
    for (const std::string& path : golden_files("nvfp4")) {
        const SafetensorsFile file(path);
        for (const GoldenInput& in : golden_inputs(file)) {
            if (!in.has("rotated")) continue;
            std::vector<float> x = in.floats("x");
            const auto signs = in.floats("signs"), signs2 = in.floats("signs2");
            ASSERT_EQ(signs.size(), 128u);
            for (size_t run = 0; run < x.size(); run += 128) hadamard<128>(&x[run], signs.data());
            expect_same_bits(x, in.floats("rotated"), in.name + ".rotated");
            for (size_t run = 0; run < x.size(); run += 128) hadamard<128>(&x[run], signs2.data());
            expect_same_bits(x, in.floats("rotated_twice"), in.name + ".rotated_twice");
        }
    }
}

/// base or pseudo scales, corrections, corrected scales and probabilities of a two_pass or post_hoc set.
struct EdenSteps {
    std::vector<uint8_t> base;
    std::vector<float> pseudo, correction, corrected, prob_up;
};

EdenSteps eden_steps(const std::vector<float>& x, float s_t, int group, bool post_hoc) {
    EdenSteps out;
    const size_t blocks_a_group = size_t(group) / kBlock;
    for (size_t block = 0; block < x.size() / kBlock; block += blocks_a_group) {
        EdenSums sums[8];
        for (size_t b = 0; b < blocks_a_group; ++b) {
            const float* at = &x[(block + b) * kBlock];
            int codes[kBlock];
            out.base.push_back(eden_base_scale(block_amax(at), s_t));
            out.pseudo.push_back(eden_pseudo_scale(block_amax(at)));
            const float pseudo = out.pseudo.back();
            const float r = !post_hoc        ? scale_reciprocal(out.base.back(), s_t)
                            : pseudo == 0.0f ? 0.0f
                                             : div(1.0f, pseudo);
            sums[b] = eden_encode(at, r, codes);
        }
        out.correction.push_back(eden_correction(group == 128 ? eden_group_sums(sums) : sums[0]));
        for (size_t b = 0; b < blocks_a_group; ++b) {
            const float scale = post_hoc ? out.pseudo[block + b] : e4m3_value(out.base[block + b]);
            out.corrected.push_back(mul(scale, out.correction.back()));
            out.prob_up.push_back(
                e4m3_prob_up(post_hoc ? div(out.corrected.back(), s_t) : out.corrected.back()));
        }
    }
    return out;
}

TEST(GoldenNvfp4Steps, EdenCorrectionsGiveTheGoldenBits) {
    SKIP_WITHOUT_GOLDEN("nvfp4");
    for (const std::string& path : golden_files("nvfp4")) {
        const SafetensorsFile file(path);
        for (const GoldenInput& in : golden_inputs(file))
            for (const GoldenSet& set : golden_sets()) {
                const std::string name = set.name;
                if (set.rounds == 0 || !in.has(name + ".corrected")) continue;
                const bool post_hoc = set.spec.range == Range::post_hoc;
                const EdenSteps steps =
                    eden_steps(in.floats(set.rounds == 1 ? "rotated" : "rotated_twice"),
                               in.floats(name + ".tensor_scale")[0], set.spec.correction, post_hoc);
                if (post_hoc)
                    expect_same_bits(steps.pseudo, in.floats(name + ".pseudo_scales"), in.name + " pseudo");
                else
                    expect_same_bits(steps.base, in.bytes(name + ".base_scales"), in.name + " base_scales");
                expect_same_bits(steps.correction, in.floats(name + ".correction"),
                                 in.name + "." + name + ".correction");
                expect_same_bits(steps.corrected, in.floats(name + ".corrected"),
                                 in.name + "." + name + ".corrected");
                expect_same_bits(steps.prob_up, in.floats(name + ".prob_up"),
                                 in.name + "." + name + ".prob_up");
                if (HasFatalFailure()) return;
            }
    }
}

}  // namespace
}  // namespace q2::test
