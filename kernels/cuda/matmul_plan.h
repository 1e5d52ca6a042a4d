// A product's shape, and the cuBLASLt objects made for it once.
#pragma once

#include "kernels/cuda/device_state.h"

namespace q2::cuda {

using LtOperation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using LtLayout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using LtPreference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

struct MatmulPlan {
    LtOperation operation;
    LtLayout a, b, out;
    cublasLtMatmulAlgo_t algorithm;
};

inline void check_cublas(cublasStatus_t status, const char* call,
                         std::source_location where = std::source_location::current()) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    fail(Exit::device, where.file_name(), ":", where.line(), ": ", call,
         " failed: ", cublasLtGetStatusName(status), ": ", cublasLtGetStatusString(status));
}

}  // namespace q2::cuda
