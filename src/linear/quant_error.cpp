#include "linear/quant_error.h"

namespace q2 {
namespace {

/// The dense form of x under a spec, in memory of its own.
struct Dense {
    Dense(Context& ctx, Tensor x, const QuantSpec& spec, const Rotation& rotation, const Address& address)
        : memory(ctx, x.bytes()), scale(ctx, sizeof(float)) {
        const Quantized out{.rows = x.rows,
                            .inner = x.cols,
                            .tensor_scale = {scale.data(), Dtype::f32, 1, 1},
                            .dense = {memory.data(), Dtype::f32, x.rows, x.cols}};
        // The grid is told by the shape of the scales.
        const int64_t scale_rows = spec.grid == Grid::tile ? x.rows / kBlock : x.rows;
        DeviceMemory codes(ctx, x.bytes() / 8), scales(ctx, size_t(x.rows * x.cols / kBlock));
        Quantized whole = out;
        whole.codes = {codes.data(), Dtype::u8, x.rows, x.cols / 2};
        whole.scales = {scales.data(), Dtype::u8, scale_rows, x.cols / kBlock};
        const bool kept = spec.rounding == Rounding::keep;
        ctx.ops->quantize(ctx, kept ? out : whole, {.dense = x}, nullptr, spec, rotation, address);
    }
    double value(int64_t i) const {
        return double(static_cast<const float*>(memory.data())[i]) * *static_cast<const float*>(scale.data());
    }

    DeviceMemory memory, scale;
};

QuantCase ms_eden_case(const char* name, int correction, Range range, Rotation rotation) {
    return {name, {.rounding = Rounding::ms_eden, .correction = correction, .range = range}, rotation};
}

}  // namespace

std::vector<QuantCase> quant_cases() {
    std::vector<QuantCase> cases;
    const std::pair<const char*, Rule> rules[] = {{"six", Rule::six},
                                                  {"mse", Rule::mse},
                                                  {"mae", Rule::mae},
                                                  {"absmax", Rule::absmax},
                                                  {"search", Rule::search}};
    for (const auto& [grid_name, grid] : {std::pair("1x16", Grid::block), std::pair("16x16", Grid::tile)})
        for (const auto& [name, rule] : rules)
            cases.push_back({concat("nearest ", name, " ", grid_name), {Rounding::nearest, rule, grid}, {}});
    for (const int size : {0, 16, 32, 128})
        cases.push_back({concat("stochastic, rotation ", size), {.rounding = Rounding::stochastic}, {size}});
    cases.push_back(ms_eden_case("ms_eden 128", 128, Range::two_pass, {128}));
    cases.push_back(ms_eden_case("ms_eden 16", 16, Range::two_pass, {128}));
    cases.push_back(ms_eden_case("ms_eden 16 post_hoc", 16, Range::post_hoc, {128}));
    cases.push_back(ms_eden_case("ms_eden 16, 2 rounds", 16, Range::two_pass, {128, 2}));
    return cases;
}

std::vector<float> quantised_values(Context& ctx, Tensor x, const QuantCase& c, uint64_t seed) {
    const StepState state{.seed = seed};
    const LentScratch scratch(ctx, ctx.ops->quantize_scratch(x.rows, x.cols));
    const Dense rounded(ctx, x, c.spec, c.rotation, {.state = &state});
    std::vector<float> values;
    for (int64_t i = 0; i < x.size(); ++i) values.push_back(float(rounded.value(i)));
    return values;
}

SquaredError quant_error(Context& ctx, Tensor x, const QuantCase& c, uint64_t seed) {
    const StepState state{.seed = seed};
    const Address address{.state = &state};
    const LentScratch scratch(ctx, ctx.ops->quantize_scratch(x.rows, x.cols));
    const Dense exact(ctx, x, {}, c.rotation, address), rounded(ctx, x, c.spec, c.rotation, address);
    SquaredError sum;
    for (int64_t i = 0; i < x.size(); ++i) {
        const double d = rounded.value(i) - exact.value(i);
        sum.error += d * d;
        sum.power += exact.value(i) * exact.value(i);
    }
    return sum;
}

}  // namespace q2
