// From what a tensor holds at run time to a kernel's template arguments: the one place for each choice.
#pragma once

#include <initializer_list>
#include <type_traits>

#include "tensor/float_type.h"

namespace q2::cuda {

template <class F>
void for_bool(bool value, F f) {
    if (value)
        f(std::true_type{});
    else
        f(std::false_type{});
}

constexpr int kWide = 8;  ///< elements a thread takes at a time where every row starts aligned

/// Rows of every tensor given (absent ones do not count) can be read kWide elements at a time.
inline bool rows_are_wide(std::initializer_list<Tensor> tensors) {
    for (const Tensor& t : tensors)
        if (t && (t.cols % kWide != 0 || reinterpret_cast<uintptr_t>(t.data) % 16 != 0)) return false;
    return true;
}

/// Calls f with the number of elements a thread takes at a time: kWide or 1.
template <class F>
void for_width(bool wide, F f) {
    if (wide)
        f(std::integral_constant<int, kWide>{});
    else
        f(std::integral_constant<int, 1>{});
}

}  // namespace q2::cuda
