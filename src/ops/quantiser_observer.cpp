#include "ops/quantiser_observer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/hadamard.h"

namespace q2 {
namespace {

/// A tensor's bytes on the host.
std::vector<uint8_t> bytes_of(Context& ctx, const Ops& ops, const Tensor& t) {
    std::vector<uint8_t> bytes(t.bytes());
    if (t) ops.download(ctx, bytes.data(), t.data, bytes.size());
    return bytes;
}

float float_at(const std::vector<uint8_t>& bytes, Dtype dtype, int64_t i) {
    if (dtype == Dtype::f32) return reinterpret_cast<const float*>(bytes.data())[i];
    return to_float(reinterpret_cast<const Bf16*>(bytes.data())[i]);
}

/// The first rows of an operand as its quantiser reads it, unrotated. Copies only what it needs where rows
/// are stored as such.
std::vector<float> first_rows(Context& ctx, const Ops& ops, const Operand& source, int64_t rows,
                              int64_t inner) {
    std::vector<float> x(size_t(rows * inner));
    const int64_t stored_rows = source.q ? source.q->rows : source.dense.rows;
    const int64_t stored_cols = source.q ? source.q->inner : source.dense.cols;
    const auto fill = [&](auto at) {
        const int64_t count =
            std::min(inner, source.transposed ? stored_rows : stored_cols);  // the rest is padding
        for (int64_t row = 0; row < rows; ++row)
            for (int64_t k = 0; k < count; ++k)
                x[size_t(row * inner + k)] = source.transposed ? at(k, row) : at(row, k);
    };
    if (!source.q) {
        const Tensor part = source.transposed ? source.dense : source.dense.slice(0, rows);
        const std::vector<uint8_t> bytes = bytes_of(ctx, ops, part);
        fill([&](int64_t row, int64_t col) { return float_at(bytes, part.dtype, row * stored_cols + col); });
        return x;
    }
    const Quantized& q = *source.q;
    const std::vector<uint8_t> codes = bytes_of(ctx, ops, q.codes), scales = bytes_of(ctx, ops, q.scales);
    const float s_t = float_at(bytes_of(ctx, ops, q.tensor_scale), Dtype::f32, 0);
    const int64_t scale_height = q.grid() == Grid::tile ? kBlock : 1;
    fill([&](int64_t row, int64_t col) {
        const int code = codes[size_t(row * q.inner + col) / 2] >> (4 * (col % 2)) & 15;
        const uint8_t scale = scales[size_t(row / scale_height * q.scales.cols + col / kBlock)];
        return mul(e2m1_value(code), mul(e4m3_value(scale), s_t));
    });
    return x;
}

void rotate(std::vector<float>& x, const Rotation& rotation, const StepState& state, const Address& address) {
    for (int round = 0; round < (rotation.size ? rotation.rounds : 0); ++round) {
        const DrawStream stream = signs_stream(state, address, round, rotation.redrawn);
        float signs[128];
        for (int i = 0; i < rotation.size; ++i) signs[i] = sign_of(stream.word(uint64_t(i), 0));
        for (size_t at = 0; at < x.size(); at += size_t(rotation.size))
            hadamard_of(rotation.size, x.data() + at, signs);
    }
}

/// The sampled rows with what their rounding needs.
struct Sample {
    const std::vector<float>& x;  // (rows, inner), rotated
    int64_t rows, inner;
    float s_t;
    DrawStream draws;

    const float* block(int64_t row, int64_t at) const { return x.data() + row * inner + at * kBlock; }
    int64_t blocks() const { return inner / kBlock; }
};

void count_scale(QuantiserFigures& f, uint8_t scale) {
    ++f.blocks;
    f.saturated += scale == kE4m3Max;
    f.zero += scale == 0;
}

template <int Rows, class Encode>
void count_block(QuantiserFigures& f, const float (*x)[kBlock], float s_t, Candidates all, Rule rule,
                 Encode encode) {
    int codes[Rows][kBlock];
    Candidates first = all;
    first.count = 1;
    const uint8_t scale = quantize_block<Rows>(x, s_t, all, rule, encode, codes);
    count_scale(f, scale);
    f.second += scale != quantize_block<Rows>(x, s_t, first, rule, encode, codes);
}

void count_nearest(QuantiserFigures& f, const Sample& s, const QuantSpec& spec) {
    const Candidates candidates = nearest_candidates(spec.rule);
    const int64_t height = spec.grid == Grid::tile ? kBlock : 1;
    for (int64_t row = 0; row + height <= s.rows; row += height)
        for (int64_t at = 0; at < s.blocks(); ++at) {
            float x[kBlock][kBlock];
            for (int64_t r = 0; r < height; ++r) std::copy_n(s.block(row + r, at), kBlock, x[r]);
            if (spec.grid == Grid::tile)
                count_block<kBlock>(f, x, s.s_t, candidates, spec.rule, NearestCodes{});
            else
                count_block<1>(f, x, s.s_t, candidates, spec.rule, NearestCodes{});
        }
}

void count_stochastic(QuantiserFigures& f, const Sample& s, const QuantSpec& spec) {
    for (int64_t row = 0; row < s.rows; ++row)
        for (int64_t at = 0; at < s.blocks(); ++at) {
            float x[1][kBlock], u[1][kBlock];
            std::copy_n(s.block(row, at), kBlock, x[0]);
            for (int i = 0; i < kBlock; ++i)
                u[0][i] = s.draws.uniform(uint64_t(at * kBlock + i), uint32_t(row));
            count_block<1>(f, x, s.s_t, stochastic_candidates(spec.rule), spec.rule, StochasticCodes{u});
        }
}

/// Post hoc, the scale that stands in is no E4M3 number and s_t comes after the correction.
void count_eden_run(QuantiserFigures& f, const Sample& s, const QuantSpec& spec, int64_t row, int64_t at,
                    int count) {
    const bool post_hoc = spec.range == Range::post_hoc;
    float base[8];
    EdenSums sums[8] = {};
    for (int b = 0; b < count; ++b) {
        const float* x = s.block(row, at + b);
        const uint8_t scale = post_hoc ? 0 : eden_base_scale(block_amax(x), s.s_t);
        base[b] = post_hoc ? eden_pseudo_scale(block_amax(x)) : e4m3_value(scale);
        const float r = !post_hoc         ? scale_reciprocal(scale, s.s_t)
                        : base[b] == 0.0f ? 0.0f
                                          : div(1.0f, base[b]);
        int codes[kBlock];
        sums[b] = eden_encode(x, r, codes);
    }
    const bool shared = spec.correction == 128 && !post_hoc;
    const EdenSums group = eden_group_sums(sums);
    for (int b = 0; b < count; ++b) {
        const float correction = eden_correction(shared ? group : sums[b]);
        const float corrected = mul(base[b], correction);
        const float u = s.draws.uniform(uint64_t(at + b), uint32_t(row));
        count_scale(f, e4m3_sr(post_hoc ? div(corrected, s.s_t) : corrected, u));
        if (shared && b > 0) continue;
        ++f.corrections;
        f.sum += correction;
        f.sum_squares += double(correction) * correction;
    }
}

void count_eden(QuantiserFigures& f, const Sample& s, const QuantSpec& spec) {
    for (int64_t row = 0; row < s.rows; ++row)
        for (int64_t at = 0; at < s.blocks(); at += 8)
            count_eden_run(f, s, spec, row, at, int(std::min<int64_t>(8, s.blocks() - at)));
}

}  // namespace

double QuantiserFigures::deviation() const {
    return std::sqrt(std::max(0.0, sum_squares / double(corrections) - mean() * mean()));
}

QuantiserObserver& QuantiserObserver::of(Context& ctx) {
    // The context's table is the observer itself.
    return const_cast<QuantiserObserver&>(static_cast<const QuantiserObserver&>(*ctx.ops));
}

QuantiserObserver::QuantiserObserver(Context& ctx) : Ops(*ctx.ops), ctx_(ctx), real_(ctx.ops) {
    quantize = [](Context& c, const Quantized& out, Operand source, const Amax* amax, const QuantSpec& spec,
                  const Rotation& rotation, const Address& address) {
        of(c).real_->quantize(c, out, source, amax, spec, rotation, address);
        of(c).observe(out, source, spec, rotation, address);
    };
    quantize_gradient = [](Context& c, const Quantized* rows, const Quantized* columns, Tensor e,
                           const GemmSpec& dgrad, const GemmSpec& wgrad, const Address& dgrad_address,
                           const Address& wgrad_address) {
        of(c).real_->quantize_gradient(c, rows, columns, e, dgrad, wgrad, dgrad_address, wgrad_address);
        if (rows) of(c).observe(*rows, {.dense = e}, dgrad.a, dgrad.rotation, dgrad_address);
        if (columns)
            of(c).observe(*columns, {.dense = e, .transposed = true}, wgrad.a, wgrad.rotation, wgrad_address);
    };
    ctx.ops = this;
}

QuantiserObserver::~QuantiserObserver() { ctx_.ops = real_; }

void QuantiserObserver::observe(const Quantized& out, const Operand& source, const QuantSpec& spec,
                                const Rotation& rotation, const Address& address) {
    if (spec.rounding == Rounding::keep) return;
    StepState state;
    real_->download(ctx_, &state, address.state, sizeof(state));
    const int64_t rows = std::min(out.rows, kRows);
    std::vector<float> x = first_rows(ctx_, *real_, source, rows, out.inner);
    rotate(x, rotation, state, address);
    const float s_t = float_at(bytes_of(ctx_, *real_, out.tensor_scale), Dtype::f32, 0);
    const Sample sample{x, rows, out.inner, s_t, rounding_stream(state, address)};
    QuantiserFigures& f = figures_[{address.layer, address.gemm, address.operand}];
    if (spec.rounding == Rounding::nearest) count_nearest(f, sample, spec);
    if (spec.rounding == Rounding::stochastic) count_stochastic(f, sample, spec);
    if (spec.rounding == Rounding::ms_eden) count_eden(f, sample, spec);
}

}  // namespace q2
