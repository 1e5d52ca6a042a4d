// How tiles are described to the copy engine.
#include <array>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device_state.h"
#include "kernels/cuda/tensor_map.h"

namespace q2::cuda {
namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

/// The driver's function, found at run time: the program must start on machines without a driver.
EncodeTiled find_encode_tiled() {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    Q2_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                             &found));
    check(found == cudaDriverEntryPointSuccess, Exit::device,
          "the NVIDIA driver has no cuTensorMapEncodeTiled: update it to one for CUDA 12 or later");
    return reinterpret_cast<EncodeTiled>(function);
}

}  // namespace

CUtensorMap tensor_map(Tensor x, int64_t batch, int64_t sequence, int rows) {
    static const EncodeTiled encode = find_encode_tiled();
    const std::array<cuuint64_t, 3> sizes{cuuint64_t(x.cols), cuuint64_t(sequence), cuuint64_t(batch)};
    const cuuint64_t row_bytes = cuuint64_t(x.cols) * sizeof(Bf16);
    const std::array<cuuint64_t, 2> strides{row_bytes, row_bytes * cuuint64_t(sequence)};
    const std::array<cuuint32_t, 3> box{cuuint32_t(kPanel), cuuint32_t(rows), 1}, steps{1, 1, 1};
    CUtensorMap map;
    const CUresult result =
        encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, x.data, sizes.data(), strides.data(), box.data(),
               steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    require(result == CUDA_SUCCESS, "cuTensorMapEncodeTiled of (", x.rows, ", ", x.cols, ") failed with ",
            int(result));
    return map;
}

}  // namespace q2::cuda
