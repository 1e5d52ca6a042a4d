// The number formats over every input they can be given, or against searches over every code.
#include "base/numeric.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace q2 {
namespace {

/// A code and the value it stands for.
struct Entry {
    int code;
    double value;
};

/// From the definition of E4M3FN: 4 bits of exponent with bias 7, 3 of mantissa, subnormals of 2^-9.
std::vector<Entry> e4m3_codes() {
    std::vector<Entry> codes;
    for (int code = 0; code <= kE4m3Max; ++code) {
        const int exponent = code >> 3, mantissa = code & 7;
        codes.push_back(
            {code, exponent ? std::ldexp(8 + mantissa, exponent - 10) : std::ldexp(mantissa, -9)});
    }
    return codes;
}
std::vector<Entry> e2m1_codes() {
    return {{0, 0}, {1, 0.5}, {2, 1}, {3, 1.5}, {4, 2}, {5, 3}, {6, 4}, {7, 6}};
}

/// The nearest code of rising `codes`, ties to the even one; beyond the last it saturates.
int nearest_code(const std::vector<Entry>& codes, double x) {
    x = std::min(x, codes.back().value);
    Entry best = codes.front();
    for (const Entry& e : codes) {
        const double d = std::abs(e.value - x), d_best = std::abs(best.value - x);
        if (d < d_best || (d == d_best && e.code % 2 == 0)) best = e;
    }
    return best.code;
}

/// Every non-negative bfloat16 from zero to infinity; random floats of all exponents near the format's; and
/// the midpoints of neighbours with the floats just below and above.
std::vector<float> interesting_magnitudes(const std::vector<Entry>& codes) {
    std::vector<float> xs;
    for (uint32_t bits = 0; bits <= 0x7f80; ++bits) xs.push_back(to_float(Bf16{uint16_t(bits)}));
    std::mt19937 generator(1);
    std::uniform_real_distribution<float> exponent(-14.0f, 11.0f);
    for (int i = 0; i < 50000; ++i) xs.push_back(std::exp2(exponent(generator)));
    for (size_t i = 1; i < codes.size(); ++i)
        for (const double at : {codes[i].value, (codes[i - 1].value + codes[i].value) / 2}) {
            xs.push_back(float(at));
            xs.push_back(std::nextafter(float(at), 0.0f));
            xs.push_back(std::nextafter(float(at), 1e9f));
        }
    return xs;
}

/// `round(x, u)` stays between x's neighbours, keeps what is representable, and goes up for exactly the
/// draws below (x - lo) / (hi - lo), counted over an even grid of u.
void expect_unbiased(const std::vector<Entry>& codes, const std::function<int(float, float)>& round) {
    constexpr int kGrid = 256, kParts = 32;
    for (size_t i = 0; i + 1 < codes.size(); ++i) {
        const double lo = codes[i].value, hi = codes[i + 1].value;
        for (int part = 0; part <= kParts; ++part) {
            const float x = float(lo + (hi - lo) * part / kParts);
            int ups = 0;
            for (int k = 0; k < kGrid; ++k) {
                const int code = round(x, float(k) / kGrid);
                ASSERT_TRUE(code == codes[i].code || code == codes[i + 1].code) << x << " gave " << code;
                ups += code == codes[i + 1].code;
            }
            ASSERT_EQ(ups, part * kGrid / kParts) << x;
        }
    }
}

// ---- bfloat16 ----

double bf16_magnitude(uint32_t bits) {  // the finite format continued: infinity's code stands for 2^128
    return bits == 0x7f80 ? 0x1p128 : double(to_float(Bf16{uint16_t(bits)}));
}

TEST(Bf16, RoundsToNearestEven) {
    std::mt19937 generator(2);
    for (int i = 0; i < 400000; ++i) {
        uint32_t bits = generator();
        if (i % 4 == 1) bits = (bits & 0xffff0000u) | 0x8000u;                 // ties
        if (i % 4 == 2) bits = (bits & 0xffff0000u) | (0x7fffu + (bits & 2));  // their neighbours
        if (i % 16 == 3) bits = (bits & 0x8000ffffu) | 0x7f7f0000u;            // around the largest finite
        const float x = float_of(bits);
        if (std::isnan(x)) continue;
        const uint32_t down = magnitude_bits(x) >> 16, up = down + 1, got = to_bf16(x).bits;
        if (std::isinf(x)) {
            ASSERT_EQ(got, bits >> 16);
            continue;
        }
        const double a = std::abs(double(x)), below = a - bf16_magnitude(down),
                     above = bf16_magnitude(up) - a;
        const uint32_t want = below < above || (below == above && down % 2 == 0) ? down : up;
        ASSERT_EQ(got, want | (bits >> 31 << 15)) << std::hexfloat << x;
    }
}

TEST(Bf16, KeepsItsOwnValues) {
    for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
        const float x = to_float(Bf16{uint16_t(bits)});
        if (std::isnan(x)) continue;
        ASSERT_EQ(to_bf16(x).bits, bits);
    }
}

TEST(Bf16, NansStayNans) {
    for (const uint32_t bits : {0x7f800001u, 0x7f80ffffu, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u})
        EXPECT_TRUE(std::isnan(to_float(to_bf16(float_of(bits))))) << std::hex << bits;
}

TEST(MagnitudeBits, OrderAsMagnitudesWithNanLargest) {
    const float infinity = std::numeric_limits<float>::infinity();
    const std::vector<float> rising = {0.0f, -1e-45f, 1e-38f, -1.0f, 1.5f, -3e38f, infinity, -std::nanf("")};
    for (size_t i = 1; i < rising.size(); ++i)
        EXPECT_LT(magnitude_bits(rising[i - 1]), magnitude_bits(rising[i])) << i;
}

// ---- E4M3 ----

TEST(E4m3, ValuesAreTheFormats) {
    for (const Entry& e : e4m3_codes()) ASSERT_EQ(double(e4m3_value(uint8_t(e.code))), e.value) << e.code;
    EXPECT_EQ(e4m3_value(kE4m3Max), 448.0f);
}

TEST(E4m3, NearestIsTheSearchOverAllCodes) {
    const std::vector<Entry> codes = e4m3_codes();
    for (const float x : interesting_magnitudes(codes))
        ASSERT_EQ(int(e4m3_rn(x)), nearest_code(codes, x)) << std::hexfloat << x;
}

TEST(E4m3, FloorIsTheSearchOverAllCodes) {
    const std::vector<Entry> codes = e4m3_codes();
    for (const float x : interesting_magnitudes(codes)) {
        int want = 0;
        for (const Entry& e : codes)
            if (e.value <= double(x)) want = e.code;
        ASSERT_EQ(int(e4m3_floor(x)), want) << std::hexfloat << x;
    }
}

TEST(E4m3, StochasticGoesUpAsOftenAsItShould) { expect_unbiased(e4m3_codes(), e4m3_sr); }

TEST(E4m3, NothingMakesTheNanCode) {
    const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
    for (const float x : {447.9f, 448.0f, 448.1f, 464.0f, 1e30f, infinity, nan})
        for (const float u : {0.0f, 0.5f, 1.0f - 0x1p-24f}) {
            EXPECT_LE(e4m3_rn(x), kE4m3Max) << x;
            EXPECT_LE(e4m3_sr(x, u), kE4m3Max) << x << " with " << u;
        }
}

// ---- E2M1 ----

TEST(E2m1, ValuesAreTheFormats) {
    for (const Entry& e : e2m1_codes()) {
        EXPECT_EQ(double(e2m1_value(e.code)), e.value);
        EXPECT_EQ(double(e2m1_value(e.code | 8)), -e.value);
        EXPECT_TRUE(std::signbit(e2m1_value(e.code | 8)));
    }
}

TEST(E2m1, NearestIsTheSearchOverAllCodes) {
    const std::vector<Entry> codes = e2m1_codes();
    for (const float x : interesting_magnitudes(codes)) {
        ASSERT_EQ(e2m1_rn(x), nearest_code(codes, x)) << std::hexfloat << x;
        ASSERT_EQ(e2m1_rn(-x), nearest_code(codes, x) | 8) << std::hexfloat << -x;
    }
}

TEST(E2m1, StochasticGoesUpAsOftenAsItShould) {
    expect_unbiased(e2m1_codes(), e2m1_sr);
    expect_unbiased(e2m1_codes(), [](float x, float u) {  // the mirror image
        const int code = e2m1_sr(-x, u);
        EXPECT_EQ(code & 8, 8);
        return code & 7;
    });
}

TEST(E2m1, StochasticSaturates) {
    for (const float x : {6.0f, 6.001f, 1e30f, std::numeric_limits<float>::infinity()})
        for (const float u : {0.0f, 1.0f - 0x1p-24f}) {
            EXPECT_EQ(e2m1_sr(x, u), 7);
            EXPECT_EQ(e2m1_sr(-x, u), 15);
        }
}

TEST(E2m1, RoundingToValuesIsRoundingToCodes) {
    std::vector<float> magnitudes = interesting_magnitudes(e2m1_codes());
    for (uint32_t bits = 0; bits < bits_of(7.0f); bits += 997) magnitudes.push_back(float_of(bits));
    for (const float magnitude : magnitudes)
        for (const float x : {magnitude, -magnitude}) {
            if (magnitude < 7.0f) {
                ASSERT_EQ(bits_of(e2m1_round(x)), bits_of(e2m1_value(e2m1_rn(x)))) << std::hexfloat << x;
            } else if (magnitude < 1e30f) {
                ASSERT_GE(std::abs(e2m1_round(x)), 8.0f) << x;
            }
            for (const float u : {0.0f, 0.25f, 0.5f, 0.7f, 1.0f - 0x1p-24f})
                ASSERT_EQ(bits_of(e2m1_round_sr(x, u)), bits_of(e2m1_value(e2m1_sr(x, u)))) << x << " " << u;
        }
}

TEST(E2m1, ValuesGiveTheirCodesBack) {
    for (int code = 0; code < 16; ++code) EXPECT_EQ(e2m1_code(e2m1_value(code)), code);
}

// What lets a bfloat16 product stand for an NVFP4 one.
TEST(Formats, Bfloat16HoldsEveryProductOfTheTwo) {
    for (int code = 0; code < 16; ++code)
        for (int scale = 0; scale <= kE4m3Max; ++scale) {
            const float product = mul(e2m1_value(code), e4m3_value(uint8_t(scale)));
            ASSERT_EQ(double(product), double(e2m1_value(code)) * double(e4m3_value(uint8_t(scale))));
            ASSERT_EQ(bits_of(to_float(to_bf16(product))), bits_of(product)) << code << " x " << scale;
            const float a = std::abs(product);
            ASSERT_TRUE(a == 0 || (a >= 0x1p-10f && a <= 2688.0f)) << product;
        }
}

}  // namespace
}  // namespace q2
