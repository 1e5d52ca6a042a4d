// The CPU backend's loops: parallel over independent pieces, so results do not depend on the number of
// threads.
#pragma once

#include <omp.h>

#include <cstdint>

#include "tensor/float_type.h"

namespace q2::cpu {

/// f(i) for i in 0..count-1, in any order and on any thread; f must not throw.
template <class F>
void parallel_for(int64_t count, F f) {
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < count; ++i) f(i);
}

/// For ops with scratch a thread: its number below thread_count().
inline int thread_count() { return omp_get_max_threads(); }
inline int thread_index() { return omp_get_thread_num(); }

/// Row-wise ops hand out this many rows at a time.
constexpr int64_t kRowChunk = 16;

/// f(first, last) over chunks of rows.
template <class F>
void parallel_rows(int64_t rows, F f) {
    parallel_for((rows + kRowChunk - 1) / kRowChunk, [&](int64_t chunk) {
        const int64_t first = chunk * kRowChunk;
        f(first, first + kRowChunk < rows ? first + kRowChunk : rows);
    });
}

}  // namespace q2::cpu
