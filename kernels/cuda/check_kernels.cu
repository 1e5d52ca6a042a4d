// Whether this binary holds kernels that the opened device can run, and which.
#include "kernels/cuda/device/hopper.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device_state.h"

namespace q2::cuda {
namespace {

/// Whether this code, of several in the binary, may use Hopper's own instructions.
__global__ void probe(unsigned long long* hopper) { *hopper = kHopperCode; }

}  // namespace

void check_kernels_run(DeviceState& state) {
    cudaFuncAttributes attributes;
    const cudaError_t error = cudaFuncGetAttributes(&attributes, probe);
    check(error == cudaSuccess, Exit::device, "backend cuda: this program was not built for GPU ",
          state.device, " (", cudaGetErrorString(error),
          "); build it again with -DCMAKE_CUDA_ARCHITECTURES set to the GPU's compute capability");
    const cudaStream_t stream = state.stream.get();
    unsigned long long hopper = 0;
    Launch{stream, 1, 1}(probe, &state.words()->count);
    Q2_CUDA(cudaMemcpyAsync(&hopper, &state.words()->count, sizeof hopper, cudaMemcpyDeviceToHost, stream));
    Q2_CUDA(cudaStreamSynchronize(stream));
    state.hopper = hopper != 0;
}

}  // namespace q2::cuda
