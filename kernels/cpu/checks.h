// What an op demands of its tensors: only a defect of the program breaks it, and the message says where.
#pragma once

#include "tensor/tensor.h"

namespace q2::cpu {

inline void require_shape(const char* what, const Tensor& x, int64_t rows, int64_t cols) {
    require(x.data || rows * cols == 0, what, " is missing");
    require(x.rows == rows && x.cols == cols, what, " is (", x.rows, ", ", x.cols, ") instead of (", rows,
            ", ", cols, ")");
}

/// Ids index a table of `limit` rows; they were checked where they were read, so this is the last line.
inline void require_ids(const char* what, const Tensor& ids, int64_t lowest, int64_t limit) {
    const int32_t* id = ids.as<int32_t>();
    for (int64_t n = 0; n < ids.size(); ++n)
        require(id[n] >= lowest && id[n] < limit, what, " ", n, " is ", id[n], ", outside ", lowest, "..",
                limit - 1);
}

}  // namespace q2::cpu
