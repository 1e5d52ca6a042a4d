// Kernel launches, checked. For .cu files.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device/check_cuda.h"

namespace q2::cuda {

/// Blocks that cover `count` elements, `per_block` each.
inline unsigned blocks_for(int64_t count, int64_t per_block) {
    const int64_t blocks = (count + per_block - 1) / per_block;
    require(blocks <= INT32_MAX, "a launch of ", blocks, " blocks is more than a grid holds");
    return unsigned(blocks);
}

/// Blocks for a kernel that strides over its work: as many as the work fills, at most `limit`.
inline unsigned strided_blocks(int64_t count, int64_t per_block, int64_t limit = 4096) {
    return unsigned(std::min((count + per_block - 1) / per_block, limit));
}

/// Where and how wide a kernel runs. Calling it launches; an empty grid is no launch.
struct Launch {
    cudaStream_t stream;
    dim3 grid, block;
    size_t shared = 0;
    std::source_location where = std::source_location::current();

    template <class... Parameters, class... Arguments>
    void operator()(void (*kernel)(Parameters...), Arguments... arguments) const {
        if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
        if (shared > 48 * 1024)  // beyond that, shared memory must be asked for
            check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                            cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)),
                       "asking for shared memory", where);
        kernel<<<grid, block, shared, stream>>>(static_cast<Parameters>(arguments)...);
        check_cuda(cudaGetLastError(), "a kernel launch", where);
    }
};

}  // namespace q2::cuda
