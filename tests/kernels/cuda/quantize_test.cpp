// The quantisers on the GPU give the CPU's bits: every scheme, source, order of storage, rotation and
// padding.
#include "tests/support/both_backends.h"

namespace q2::test {
namespace {

QuantSpec nearest(Rule rule, Grid grid = Grid::block) {
    return {.rounding = Rounding::nearest, .rule = rule, .grid = grid};
}
QuantSpec stochastic(Rule rule) { return {.rounding = Rounding::stochastic, .rule = rule}; }
QuantSpec eden(int correction, Range range = Range::two_pass) {
    return {.rounding = Rounding::ms_eden, .correction = correction, .range = range};
}

std::vector<QuantSpec> all_specs() {
    std::vector<QuantSpec> specs = {{}, eden(128), eden(16), eden(16, Range::post_hoc)};
    for (const Rule rule : {Rule::six, Rule::mse, Rule::mae, Rule::absmax, Rule::search}) {
        specs.push_back(nearest(rule));
        specs.push_back(nearest(rule, Grid::tile));
        specs.push_back(stochastic(rule));
    }
    return specs;
}

std::string name_of(const QuantSpec& s) {
    return concat("rounding ", int(s.rounding), ", rule ", int(s.rule), ", grid ", int(s.grid),
                  ", correction ", s.correction, ", range ", int(s.range));
}

/// A quantised operand with all its parts, poisoned.
class QuantizedParts {
  public:
    QuantizedParts(Context& ctx, int64_t rows, int64_t inner, const QuantSpec& spec)
        : keep_(spec.rounding == Rounding::keep),
          codes_(ctx, Dtype::u8, rows, inner / 2),
          scales_(ctx, Dtype::u8, tiles(spec) ? rows / kBlock : rows, inner / kBlock),
          tensor_scale_(ctx, Dtype::f32, 1, 1),
          dense_(ctx, ctx.ops->dense_dtype, rows, inner),
          view_{rows, inner, codes_, scales_, tensor_scale_, dense_} {}

    const Quantized& view() const { return view_; }
    /// Each part as numbers that differ where the bits do. A dense form is exact in the type of either
    /// backend, but for a kept operand, which the narrower one rounds.
    std::vector<Floats> parts() const {
        const auto numbers = [](const auto& values) { return Floats(values.begin(), values.end()); };
        Floats dense = dense_.floats();
        if (keep_) {
            for (float& x : dense) x = to_float(to_bf16(x));
            return {dense, tensor_scale_.floats()};
        }
        return {numbers(codes_.values<uint8_t>()), numbers(scales_.values<uint8_t>()), tensor_scale_.floats(),
                dense};
    }

  private:
    static bool tiles(const QuantSpec& s) { return s.rounding == Rounding::nearest && s.grid == Grid::tile; }

    bool keep_;
    DeviceTensor codes_, scales_, tensor_scale_, dense_;
    Quantized view_;
};

/// How the source lies in memory.
struct Storage {
    Dtype dtype;
    bool transposed;
};

struct Case {
    int64_t rows, inner;   // of the operand
    int64_t source_inner;  // before the padding
    Rotation rotation;
};

class CudaQuantize : public BothBackends {
  protected:
    StepState state() { return {.seed = 0x123456789abcdefull + seed(), .step = 7, .micro_batch = 3}; }

    static Address address(const StepState* state) {
        return {.state = state, .layer = 5, .gemm = kWgrad, .operand = 1};
    }

    void check(const QuantSpec& spec, const Storage& stored, const Case& c, bool amax_known = false) {
        const Floats x = normals(c.rows * c.source_inner, 1.7f);
        compare(concat(name_of(spec), "; ", c.rows, " x ", c.inner, ", rotation ", c.rotation.size,
                       stored.transposed ? ", transposed" : ""),
                0.0, [&](Context& ctx) {
                    const DeviceState step(ctx, state());
                    const LentScratch scratch(ctx, ctx.ops->quantize_scratch(c.rows, c.inner));
                    const DeviceTensor source = stored.transposed
                                                    ? tensor_of(ctx, stored.dtype, c.source_inner, c.rows, x)
                                                    : tensor_of(ctx, stored.dtype, c.rows, c.source_inner, x);
                    const DeviceTensor amax(ctx, 1, 1, std::vector<int32_t>{int32_t(amax_bits(x))});
                    const QuantizedParts out(ctx, c.rows, c.inner, spec);
                    ctx.ops->quantize(ctx, out.view(), {.dense = source, .transposed = stored.transposed},
                                      amax_known ? static_cast<Amax*>(amax.view().data) : nullptr, spec,
                                      c.rotation, address(step.get()));
                    return out.parts();
                });
    }

    /// From codes, as the backward reads what the forward saved.
    void check_codes(const QuantSpec& saved, const QuantSpec& spec, bool transposed, const Case& c) {
        const int64_t rows = transposed ? c.source_inner : c.rows,
                      inner = transposed ? c.rows : c.source_inner;
        const Floats x = normals(rows * inner);
        compare(concat(name_of(spec), " from codes of ", name_of(saved), transposed ? ", transposed" : ""),
                0.0, [&](Context& ctx) {
                    const DeviceState step(ctx, state());
                    const LentScratch scratch(
                        ctx, ctx.ops->quantize_scratch(std::max(rows, c.rows), std::max(inner, c.inner)));
                    const QuantizedParts codes(ctx, rows, inner, saved), out(ctx, c.rows, c.inner, spec);
                    ctx.ops->quantize(ctx, codes.view(),
                                      {.dense = tensor_of(ctx, Dtype::f32, rows, inner, x)}, nullptr, saved,
                                      {}, address(step.get()));
                    ctx.ops->quantize(ctx, out.view(), {.q = &codes.view(), .transposed = transposed},
                                      nullptr, spec, c.rotation, address(step.get()));
                    return out.parts();
                });
    }
};

TEST_F(CudaQuantize, EverySchemeGivesTheCpusBits) {
    for (const QuantSpec& spec : all_specs())
        for (const Storage& stored : {Storage{Dtype::f32, false}, Storage{Dtype::f32, true},
                                      Storage{Dtype::bf16, false}, Storage{Dtype::bf16, true}}) {
            check(spec, stored, {48, 256, 256, {}});
            check(spec, stored, {16, 384, 384, {.size = 128, .rounds = 2}});
            if (HasFatalFailure()) return;
        }
}

TEST_F(CudaQuantize, EveryRotationGivesTheCpusBits) {
    for (const int size : {16, 32, 64, 128})
        for (const int rounds : {1, 2})
            for (const bool redrawn : {false, true})
                for (const QuantSpec& spec :
                     {QuantSpec{}, eden(128), eden(16, Range::post_hoc), nearest(Rule::six)}) {
                    check(spec, {Dtype::bf16, false}, {33, 256, 256, {size, rounds, redrawn}});
                    check(spec, {Dtype::bf16, true}, {40, 256, 256, {size, rounds, redrawn}});
                    if (HasFatalFailure()) return;
                }
}

/// Odd numbers of rows, inner sizes below a tile of 128, tokens padded with zeros.
TEST_F(CudaQuantize, OddSizesGiveTheCpusBits) {
    for (const int64_t rows : {1, 3, 17, 511})
        for (const Dtype dtype : kFloatTypes) {
            check(nearest(Rule::mse), {dtype, false}, {rows, 640, 640, {}});
            check(stochastic(Rule::six), {dtype, false}, {rows, 16, 16, {}});
            check(nearest(Rule::search), {dtype, false}, {rows, 144, 144, {}}, true);
            check(eden(128), {dtype, true}, {112, 512, rows, {.size = 128}});
            check(eden(16), {dtype, true}, {rows, 128, 127, {.size = 32}});
            check(stochastic(Rule::six), {dtype, false}, {rows, 48, 37, {.size = 16}});
            check({}, {dtype, true}, {16, 512, rows, {}});
            if (HasFatalFailure()) return;
        }
}

TEST_F(CudaQuantize, CodesGiveTheCpusBits) {
    for (const QuantSpec& saved : {nearest(Rule::mse), nearest(Rule::six, Grid::tile), nearest(Rule::search)})
        for (const QuantSpec& spec :
             {QuantSpec{}, eden(128), eden(16), eden(16, Range::post_hoc), stochastic(Rule::six)})
            for (const bool transposed : {false, true})
                for (const int size : {0, 32, 128}) {
                    check_codes(saved, spec, transposed, {80, 256, 256, {.size = size}});
                    check_codes(saved, spec, transposed, {48, 384, 272, {.size = size}});
                    if (HasFatalFailure()) return;
                }
}

/// A NaN or an infinity must reach the tensor scale, and a vanishing tensor must not divide by zero.
TEST_F(CudaQuantize, SpecialValuesReachTheTensorScale) {
    for (const QuantSpec& spec : all_specs()) {
        if (spec.rounding == Rounding::keep) continue;
        for (const float special : {0.0f, -0.0f, 1e-38f, float(INFINITY), float(NAN)}) {
            Floats x(16 * 128, special == special && std::abs(special) < 1 ? special : 1.0f);
            x[700] = special;
            const DeviceState step(cuda(), state());
            const LentScratch scratch(cuda(), cuda().ops->quantize_scratch(16, 128));
            const QuantizedParts out(cuda(), 16, 128, spec);
            cuda().ops->quantize(cuda(), out.view(), {.dense = DeviceTensor(cuda(), 16, 128, x)}, nullptr,
                                 spec, {}, address(step.get()));
            const float s_t = out.parts()[2][0];
            EXPECT_EQ(std::isfinite(s_t), std::isfinite(special)) << name_of(spec) << " of " << special;
            if (!std::isfinite(special)) continue;
            EXPECT_EQ(s_t, 1.0f) << name_of(spec) << " of " << special;
        }
    }
}

TEST_F(CudaQuantize, GradientsInBothOrientationsGiveTheCpusBits) {
    const GemmSpec quartet2{{.size = 128}, eden(128), eden(128)},
        plus{{.size = 128, .rounds = 2}, eden(16), eden(16)};
    const GemmSpec plain{{}, stochastic(Rule::six), {}}, rotated{{.size = 16}, stochastic(Rule::six), {}};
    const std::pair<GemmSpec, GemmSpec> recipes[] = {{quartet2, quartet2}, {plus, plus}, {plain, rotated}};
    for (const auto& [dgrad, wgrad] : recipes)
        for (const int64_t tokens : {1, 17, 512}) {
            const int64_t features = 384, padded = (tokens + 127) / 128 * 128;
            const Floats e = normals(tokens * features, 1e-3f);
            compare(concat("gradient of ", tokens, " tokens"), 0.0, [&](Context& ctx) {
                const DeviceState step(ctx, state());
                const LentScratch scratch(
                    ctx, ctx.ops->quantize_scratch(std::max(tokens, features), std::max(padded, features)));
                const QuantizedParts rows(ctx, tokens, features, dgrad.a),
                    columns(ctx, features, padded, wgrad.a);
                const DeviceTensor source = tensor_of(ctx, Dtype::bf16, tokens, features, e);
                ctx.ops->quantize_gradient(ctx, &rows.view(), &columns.view(), source, dgrad, wgrad,
                                           {.state = step.get(), .layer = 2, .gemm = kDgrad},
                                           {.state = step.get(), .layer = 2, .gemm = kWgrad});
                std::vector<Floats> parts = rows.parts();
                for (Floats& part : columns.parts()) parts.push_back(std::move(part));
                return parts;
            });
            if (HasFatalFailure()) return;
        }
}

class CudaQuantizeLarge : public CudaQuantize {};

TEST_F(CudaQuantizeLarge, SixteenThousandRowsGiveTheCpusBits) {
    const Case plain{16384, 4096, 4096, {}}, rotated{16384, 4096, 4096, {.size = 128}};
    check(nearest(Rule::search), {Dtype::bf16, false}, plain);
    check(nearest(Rule::six, Grid::tile), {Dtype::f32, false}, plain);
    check(stochastic(Rule::six), {Dtype::bf16, true}, plain);
    check(eden(128), {Dtype::bf16, false}, rotated);
    check(eden(128), {Dtype::bf16, true}, rotated);
    check(eden(16, Range::post_hoc), {Dtype::bf16, true}, rotated);
}

}  // namespace
}  // namespace q2::test
