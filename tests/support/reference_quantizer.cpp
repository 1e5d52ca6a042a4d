#include "tests/support/reference_quantizer.h"

#include <algorithm>
#include <cmath>

#include "base/rng.h"

namespace q2::test {
namespace {

uint32_t word_at(const DrawAddress& a, int64_t position, int64_t row, uint32_t purpose) {
    const uint32_t counter2 = ((a.layer * 3 + a.gemm) * 2 + a.operand) * 4 + purpose;
    return philox(uint32_t(a.seed), uint32_t(a.seed >> 32) + a.micro_batch, uint32_t(position / 4),
                  uint32_t(row), counter2, a.step)
        .word[position % 4];
}
float uniform_at(const DrawAddress& a, int64_t position, int64_t row) {
    return float(word_at(a, position, row, 0) >> 8) * 0x1p-24f;
}

float largest_magnitude(const float* x, int64_t count) {
    float largest = 0;
    for (int64_t i = 0; i < count; ++i)
        if (std::isnan(x[i]) || std::abs(x[i]) > largest) largest = std::abs(x[i]);
    return largest;
}

/// One quantisation at work: x, and the result as far as it is made.
struct Work {
    const std::vector<float>& x;
    int64_t rows, inner;
    const DrawAddress& draws;
    ReferenceOperand out;

    int64_t blocks() const { return inner / kBlock; }
    const float* block(int64_t row, int64_t b) const { return &x[size_t(row * inner + b * kBlock)]; }
    uint8_t* codes(int64_t row, int64_t b) { return &out.codes[size_t(row * inner + b * kBlock)]; }
    uint8_t& scale(int64_t row, int64_t b) { return out.scales[size_t(row * blocks() + b)]; }

    void set_tensor_scale(float top, float limit) {
        const float amax = largest_magnitude(x.data(), rows * inner);
        out.tensor_scale = amax < 0x1p-100f ? 1.0f : amax / (top * limit);
    }
    uint8_t scale_for(float amax, float m, int step) const {
        const float inv = 1.0f / (m * out.tensor_scale);
        return uint8_t(std::clamp(int(e4m3_rn(amax * inv)) + step, 0, 126));
    }
    float reciprocal(uint8_t scale) const {
        return scale ? 1.0f / (e4m3_value(scale) * out.tensor_scale) : 0.0f;
    }
};

// ---- Sections 3 and 4 ----

float error_of_row(const Work& w, const float* x, const uint8_t* codes, uint8_t scale, Rule rule) {
    float error = 0;
    for (int i = 0; i < kBlock; ++i) {
        const float d = x[i] - e2m1_value(codes[i]) * (e4m3_value(scale) * w.out.tensor_scale);
        if (rule == Rule::absmax)
            error = std::max(error, std::abs(d));
        else
            error += rule == Rule::mae ? std::abs(d) : d * d;
    }
    return error;
}

/// Rows row..row+height-1 of one block column, by the first of the candidates with the least error.
void round_block(Work& w, int64_t row, int64_t height, int64_t b, const QuantSpec& spec) {
    const bool stochastic = spec.rounding == Rounding::stochastic;
    const float shrink = stochastic ? 17.0f / 16.0f : 1.0f;
    std::vector<Candidate> candidates = {{6.0f / shrink, 0}};
    if (spec.rule != Rule::six) candidates.push_back({4.0f / shrink, 0});
    if (spec.rule == Rule::search)
        for (const Candidate& c : {Candidate{6, 1}, {6, -1}, {4, 1}, {4, -1}}) candidates.push_back(c);
    float amax = 0, best = INFINITY;
    for (int64_t r = 0; r < height; ++r)
        amax = std::max(amax, largest_magnitude(w.block(row + r, b), kBlock));
    for (const Candidate& c : candidates) {
        const uint8_t scale = w.scale_for(amax, c.m, c.step);
        std::vector<uint8_t> codes;
        float error = 0;
        for (int64_t r = 0; r < height; ++r) {
            for (int i = 0; i < kBlock; ++i) {
                const float y = w.block(row + r, b)[i] * w.reciprocal(scale);
                codes.push_back(uint8_t(stochastic ? e2m1_sr(y, uniform_at(w.draws, b * kBlock + i, row + r))
                                                   : e2m1_rn(y)));
            }
            const float e =
                error_of_row(w, w.block(row + r, b), &codes[size_t(r * kBlock)], scale, spec.rule);
            error = spec.rule == Rule::absmax ? std::max(error, e) : error + e;
        }
        if (error >= best) continue;
        best = error;
        for (int64_t r = 0; r < height; ++r) {
            std::copy_n(&codes[size_t(r * kBlock)], kBlock, w.codes(row + r, b));
            w.scale(row + r, b) = scale;
        }
    }
}

void round_elements(Work& w, const QuantSpec& spec) {
    const float top = spec.rounding == Rounding::stochastic ? 6.0f / (17.0f / 16.0f) : 6.0f;
    w.set_tensor_scale(top, spec.rule == Rule::six ? 448.0f : 256.0f);
    const int64_t height = spec.grid == Grid::tile ? kBlock : 1;
    for (int64_t row = 0; row < w.rows; row += height)
        for (int64_t b = 0; b < w.blocks(); ++b) round_block(w, row, height, b, spec);
}

// ---- Section 6 ----

struct Sums {
    float num = 0, den = 0;

    Sums operator+(const Sums& other) const { return {num + other.num, den + other.den}; }
    float correction() const { return den == 0 ? 1.0f : num / den; }
};

/// The block's codes under reciprocal r, and its sums.
Sums encode(Work& w, int64_t row, int64_t b, float r) {
    Sums sums;
    for (int i = 0; i < kBlock; ++i) {
        const float y = w.block(row, b)[i] * r;
        const int code = e2m1_rn(y);
        w.codes(row, b)[i] = uint8_t(code);
        sums = sums + Sums{y * y, y * e2m1_value(code)};
    }
    return sums;
}

constexpr float kTopOfEden = 6.0f / ((17.0f / 16.0f) * 0.93f);

void round_eden(Work& w, int correction) {
    w.set_tensor_scale(kTopOfEden, 256.0f);
    for (int64_t row = 0; row < w.rows; ++row)
        for (int64_t first = 0; first < w.blocks(); first += correction / kBlock) {
            std::vector<Sums> s;
            for (int64_t b = first; b < first + correction / kBlock; ++b) {
                w.scale(row, b) = w.scale_for(largest_magnitude(w.block(row, b), kBlock), kTopOfEden, 0);
                s.push_back(encode(w, row, b, w.reciprocal(w.scale(row, b))));
            }
            const Sums all =
                s.size() == 1 ? s[0] : ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
            for (int64_t b = first; b < first + correction / kBlock; ++b)
                w.scale(row, b) =
                    e4m3_sr(e4m3_value(w.scale(row, b)) * all.correction(), uniform_at(w.draws, b, row));
        }
}

void round_eden_post_hoc(Work& w) {
    std::vector<float> c;
    for (int64_t row = 0; row < w.rows; ++row)
        for (int64_t b = 0; b < w.blocks(); ++b) {
            float pseudo = largest_magnitude(w.block(row, b), kBlock) * (1.0f / kTopOfEden);
            int exponent;
            const float fraction = std::frexp(pseudo, &exponent);  // in [1/2, 1): 4 explicit bits are 32nds
            pseudo = pseudo < 0x1p-100f ? 0.0f : std::ldexp(std::floor(fraction * 32.0f), exponent - 5);
            c.push_back(pseudo * encode(w, row, b, pseudo > 0 ? 1.0f / pseudo : 0.0f).correction());
        }
    const float largest = largest_magnitude(c.data(), int64_t(c.size()));
    w.out.tensor_scale = largest == 0 ? 1.0f : largest / 256.0f;
    for (int64_t row = 0; row < w.rows; ++row)
        for (int64_t b = 0; b < w.blocks(); ++b)
            w.scale(row, b) =
                e4m3_sr(c[size_t(row * w.blocks() + b)] / w.out.tensor_scale, uniform_at(w.draws, b, row));
}

}  // namespace

std::vector<float> reference_rotate(std::vector<float> x, const Rotation& rotation, const DrawAddress& a) {
    const size_t n = size_t(rotation.size);
    for (uint32_t round = 0; n > 0 && round < uint32_t(rotation.rounds); ++round)
        for (size_t run = 0; run < x.size(); run += n) {
            float* z = &x[run];
            DrawAddress shared = a;  // by both operands of the product
            shared.operand = 0;
            if (!rotation.redrawn) shared.step = shared.micro_batch = 0;
            for (size_t i = 0; i < n; ++i)
                if (word_at(shared, int64_t(i), 0, 1 + round) >> 31) z[i] = -z[i];
            for (size_t h = 1; h < n; h *= 2)
                for (size_t j = 0; j < n; ++j)
                    if (!(j & h)) {
                        const float low = z[j], high = z[j + h];
                        z[j] = low + high;
                        z[j + h] = low - high;
                    }
            for (size_t i = 0; i < n; ++i) z[i] *= float(1 / std::sqrt(double(n)));
        }
    return x;
}

ReferenceOperand reference_quantize(const std::vector<float>& x, int64_t rows, int64_t inner,
                                    const QuantSpec& spec, const Rotation& rotation,
                                    const ReferenceDraws& draws) {
    const std::vector<float> z = reference_rotate(x, rotation, draws.signs);
    if (spec.rounding == Rounding::keep) return {.codes = {}, .scales = {}, .value = z};
    Work w{z, rows, inner, draws.rounding, {}};
    w.out.codes.resize(z.size());
    w.out.scales.resize(z.size() / kBlock);
    if (spec.rounding != Rounding::ms_eden)
        round_elements(w, spec);
    else if (spec.range == Range::post_hoc)
        round_eden_post_hoc(w);
    else
        round_eden(w, spec.correction);
    for (size_t i = 0; i < z.size(); ++i)
        w.out.value.push_back(e2m1_value(w.out.codes[i]) *
                              (e4m3_value(w.out.scales[i / kBlock]) * w.out.tensor_scale));
    return w.out;
}

std::vector<float> transposed(const std::vector<float>& x, int64_t rows, int64_t cols, int64_t padded_rows) {
    std::vector<float> out(size_t(cols * padded_rows), 0.0f);
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < cols; ++c) out[size_t(c * padded_rows + r)] = x[size_t(r * cols + c)];
    return out;
}

}  // namespace q2::test
