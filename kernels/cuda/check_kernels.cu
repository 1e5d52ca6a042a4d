// Whether this binary holds kernels that the opened device can run.
#include "kernels/cuda/device_state.h"

namespace q2::cuda {
namespace {

__global__ void probe() {}

}  // namespace

void check_kernels_run(const DeviceState& state) {
    cudaFuncAttributes attributes;
    const cudaError_t error = cudaFuncGetAttributes(&attributes, probe);
    check(error == cudaSuccess, Exit::device, "backend cuda: this program was not built for GPU ",
          state.device, " (", cudaGetErrorString(error),
          "); build it again with -DCMAKE_CUDA_ARCHITECTURES set to the GPU's compute capability");
}

}  // namespace q2::cuda
