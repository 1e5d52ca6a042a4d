// Data of a small linear layer, and its exact products.
#pragma once

#include <random>
#include <vector>

#include "linear/lone_layer.h"
#include "linear/recipes.h"
#include "tests/support/device.h"

namespace q2::test {

/// Normal deviates, times exp(tail * another): tail 0 is Gaussian, 1.5 full of outliers.
inline Floats deviates(int64_t count, uint32_t seed, float tail = 0.0f) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    Floats x;
    for (int64_t i = 0; i < count; ++i) {
        const float body = normal(generator);
        x.push_back(tail > 0 ? body * std::exp(tail * normal(generator)) : body);
    }
    return x;
}

/// out (m, n) = a (m, k) b (n, k)^T in double.
inline std::vector<double> exact_product(const Floats& a, const Floats& b, int64_t k) {
    const int64_t m = int64_t(a.size()) / k, n = int64_t(b.size()) / k;
    const std::vector<double> b_wide(b.begin(), b.end());
    std::vector<double> out;
    for (int64_t i = 0; i < m; ++i) {
        const std::vector<double> row(a.begin() + i * k, a.begin() + (i + 1) * k);
        for (int64_t j = 0; j < n; ++j) {
            double sum = 0;
            for (int64_t p = 0; p < k; ++p) sum += row[size_t(p)] * b_wide[size_t(j * k + p)];
            out.push_back(sum);
        }
    }
    return out;
}

}  // namespace q2::test
