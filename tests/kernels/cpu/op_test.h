// What the tests of ops share: owned matrices poisoned until written, central differences of a loss in
// double, and runs on one and on two threads.
#pragma once

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cpu/cpu_ops.h"

namespace q2::test {

using Values = std::vector<double>;

/// An owned matrix. All its bits are set at first, which is a NaN in either float type, so that an element
/// an op forgets shows.
class Array {
  public:
    Array(int64_t rows, int64_t cols, Dtype dtype = Dtype::f32)
        : bytes_(size_t(rows * cols) * size_of(dtype), 0xff), dtype_(dtype), rows_(rows), cols_(cols) {}

    static Array of(const Values& values, int64_t rows, int64_t cols, Dtype dtype = Dtype::f32) {
        Array array(rows, cols, dtype);
        for (int64_t i = 0; i < rows * cols; ++i) array.set(i, values[size_t(i)]);
        return array;
    }
    static Array ids(const std::vector<int32_t>& ids) {
        Array array(int64_t(ids.size()), 1, Dtype::i32);
        std::memcpy(array.bytes_.data(), ids.data(), array.bytes_.size());
        return array;
    }
    /// Normal deviates that bfloat16 holds exactly, so that both float types can start from the same values.
    static Array random(int64_t rows, int64_t cols, uint32_t seed, Dtype dtype = Dtype::f32) {
        std::mt19937 generator(seed);
        std::normal_distribution<float> normal;
        Array array(rows, cols, dtype);
        for (int64_t i = 0; i < rows * cols; ++i) array.set(i, to_float(to_bf16(normal(generator))));
        return array;
    }

    Tensor tensor() { return {bytes_.data(), dtype_, rows_, cols_}; }
    operator Tensor() { return tensor(); }
    int64_t size() const { return rows_ * cols_; }
    const std::vector<unsigned char>& bytes() const { return bytes_; }

    double operator[](int64_t i) const {
        if (dtype_ == Dtype::f32) return at<float>(i);
        return to_float(at<Bf16>(i));
    }
    void set(int64_t i, double value) {
        if (dtype_ == Dtype::f32) return put(i, float(value));
        put(i, to_bf16(float(value)));
    }
    Values values() const {
        Values values;
        for (int64_t i = 0; i < size(); ++i) values.push_back((*this)[i]);
        return values;
    }
    Array as(Dtype dtype) const { return of(values(), rows_, cols_, dtype); }

  private:
    template <class T>
    T at(int64_t i) const {
        T value;
        std::memcpy(&value, bytes_.data() + size_t(i) * sizeof(T), sizeof(T));
        return value;
    }
    template <class T>
    void put(int64_t i, T value) {
        std::memcpy(bytes_.data() + size_t(i) * sizeof(T), &value, sizeof(T));
    }

    std::vector<unsigned char> bytes_;
    Dtype dtype_;
    int64_t rows_, cols_;
};

/// A context with exactly the scratch that an op's query asks for, poisoned.
class OpContext {
  public:
    explicit OpContext(size_t scratch = 0) : scratch_(scratch + 256, 0xff) {
        void* start = scratch_.data();
        size_t space = scratch_.size();
        ctx_.scratch = std::align(256, scratch, start, space);
        ctx_.scratch_bytes = scratch;
    }
    operator Context&() { return ctx_; }

  private:
    std::vector<unsigned char> scratch_;
    Context ctx_;
};

inline double dot(const Values& a, const Values& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

/// |actual - expected| <= tolerance * (1 + |expected|) everywhere; a NaN fails.
inline void expect_close(const Array& actual, const Values& expected, double tolerance, const char* what) {
    ASSERT_EQ(size_t(actual.size()), expected.size()) << what;
    for (int64_t i = 0; i < actual.size(); ++i) {
        const double want = expected[size_t(i)];
        ASSERT_LE(std::abs(actual[i] - want), tolerance * (1 + std::abs(want)))
            << what << " " << i << ": " << actual[i] << " instead of " << want;
        ASSERT_FALSE(std::isnan(actual[i])) << what << " " << i;
    }
}

/// actual is d loss / d x, by central differences of a loss computed in double; every `stride`-th element.
inline void expect_gradient(const Array& actual, Values x, const std::function<double(const Values&)>& loss,
                            double tolerance, const char* what, size_t stride = 1) {
    ASSERT_EQ(size_t(actual.size()), x.size()) << what;
    constexpr double kStep = 1e-4;
    for (size_t i = 0; i < x.size(); i += stride) {
        const double at = x[i];
        x[i] = at + kStep;
        const double above = loss(x);
        x[i] = at - kStep;
        const double below = loss(x);
        x[i] = at;
        const double want = (above - below) / (2 * kStep);
        ASSERT_LE(std::abs(actual[int64_t(i)] - want), tolerance * (1 + std::abs(want)))
            << what << " " << i << ": " << actual[int64_t(i)] << " instead of " << want;
    }
    for (int64_t i = 0; i < actual.size(); ++i) ASSERT_FALSE(std::isnan(actual[i])) << what << " " << i;
}

/// run() makes the same bits on one thread and on two. What it returns is compared.
inline void expect_same_bits_on_two_threads(const std::function<std::vector<Array>()>& run) {
    const int before = omp_get_max_threads();
    omp_set_num_threads(1);
    const std::vector<Array> one = run();
    omp_set_num_threads(2);
    for (int repeat = 0; repeat < 3; ++repeat) {
        const std::vector<Array> two = run();
        ASSERT_EQ(one.size(), two.size());
        for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(one[i].bytes(), two[i].bytes()) << "output " << i;
    }
    omp_set_num_threads(before);
}

/// The amax output an op should give for what it stored.
inline uint32_t amax_bits(const Array& x) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < x.size(); ++i) largest = std::max(largest, magnitude_bits(float(x[i])));
    return largest;
}

}  // namespace q2::test
