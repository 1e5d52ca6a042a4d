// A non-owning view of a row-major matrix. The arena owns; views never do.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/numeric.h"

namespace q2 {

enum class Dtype : uint8_t { f32, bf16, i32, u8 };

constexpr size_t size_of(Dtype dtype) {
    return dtype == Dtype::f32 || dtype == Dtype::i32 ? 4 : dtype == Dtype::bf16 ? 2 : 1;
}
constexpr const char* name_of(Dtype dtype) {
    return dtype == Dtype::f32    ? "float32"
           : dtype == Dtype::bf16 ? "bfloat16"
           : dtype == Dtype::i32  ? "int32"
                                  : "uint8";
}

template <class T>
constexpr Dtype dtype_of();
template <>
constexpr Dtype dtype_of<float>() {
    return Dtype::f32;
}
template <>
constexpr Dtype dtype_of<Bf16>() {
    return Dtype::bf16;
}
template <>
constexpr Dtype dtype_of<int32_t>() {
    return Dtype::i32;
}
template <>
constexpr Dtype dtype_of<uint8_t>() {
    return Dtype::u8;
}

struct Tensor {
    void* data = nullptr;
    Dtype dtype = Dtype::f32;
    int64_t rows = 0, cols = 0;

    explicit operator bool() const { return data != nullptr; }
    int64_t size() const { return rows * cols; }
    size_t bytes() const { return size_t(size()) * size_of(dtype); }

    template <class T>
    T* as() const {
        require(dtype == dtype_of<T>(), "a ", name_of(dtype), " tensor was read as ", name_of(dtype_of<T>()));
        return static_cast<T*>(data);
    }
    /// `count` rows from row `first` on.
    Tensor slice(int64_t first, int64_t count) const {
        return {static_cast<char*>(data) + size_t(first * cols) * size_of(dtype), dtype, count, cols};
    }
};

}  // namespace q2
