// Opening a device, its memory, and the transfers, which run in stream order with the ops around them.
#include <cstring>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device_state.h"
#include "kernels/cuda/matmul_plan.h"

namespace q2::cuda {
namespace {

constexpr int kOldestCapability = 80;

std::string mebibytes(size_t bytes) { return concat((bytes + (1 << 20) - 1) >> 20, " MiB"); }

/// The device's number is good and its generation is supported.
void check_device(int device) {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    check(error == cudaSuccess, Exit::device, "backend cuda: no usable NVIDIA driver (",
          cudaGetErrorString(error), "); install or update the driver, or use backend cpu");
    check(count > 0, Exit::device, "backend cuda: this machine has no NVIDIA GPU; use backend cpu");
    check(device >= 0 && device < count, Exit::device, "backend cuda: there is no GPU ", device,
          "; this machine has ", count, ", numbered from 0");
    int major = 0, minor = 0;
    Q2_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    Q2_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    check(10 * major + minor >= kOldestCapability, Exit::device, "backend cuda: GPU ", device,
          " has compute capability ", major, ".", minor, "; 8.0 or later is needed");
}

Stream make_stream() {
    cudaStream_t stream;
    Q2_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return Stream(stream);
}

LtHandle make_lt_handle() {
    cublasLtHandle_t handle;
    check_cublas(cublasLtCreate(&handle), "cublasLtCreate");
    return LtHandle(handle);
}

DeviceBytes make_device_bytes(size_t bytes) {
    void* data = nullptr;
    if (cudaMalloc(&data, bytes) == cudaSuccess) return DeviceBytes(data);
    cudaGetLastError();  // the failed allocation must not be reported by a later call
    size_t free = 0, total = 0;
    Q2_CUDA(cudaMemGetInfo(&free, &total));
    fail(Exit::device, "the GPU has no room for ", mebibytes(bytes), ": ", mebibytes(free), " of ",
         mebibytes(total),
         " are free; use a smaller micro-batch, sequence or model (`quartet2 plan` prints "
         "what a config needs), or free the GPU");
}

}  // namespace

StagingRing::StagingRing() {
    void* data = nullptr;
    Q2_CUDA(cudaMallocHost(&data, kSlots * kSlotBytes));
    memory_.reset(data);
    for (Event& slot : copied_) {
        cudaEvent_t event;
        Q2_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        slot.reset(event);
    }
}

void StagingRing::upload(cudaStream_t stream, void* device, const void* host, size_t bytes) {
    for (size_t done = 0; done < bytes; done += kSlotBytes) {
        const size_t count = std::min(kSlotBytes, bytes - done), slot = next_++ % kSlots;
        void* staged = static_cast<char*>(memory_.get()) + slot * kSlotBytes;
        Q2_CUDA(cudaEventSynchronize(copied_[slot].get()));
        std::memcpy(staged, static_cast<const char*>(host) + done, count);
        Q2_CUDA(cudaMemcpyAsync(static_cast<char*>(device) + done, staged, count, cudaMemcpyHostToDevice,
                                stream));
        Q2_CUDA(cudaEventRecord(copied_[slot].get(), stream));
    }
}

DeviceState::DeviceState(int device)
    : device(device),
      stream(make_stream()),
      lt(make_lt_handle()),
      words_memory(make_device_bytes(sizeof(DeviceWords))) {
    Q2_CUDA(cudaDeviceGetAttribute(&shared_memory, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    const DeviceWords start{.zero = 0.0f, .one = 1.0f, .alpha = 1.0f, .count = 0};
    staging.upload(stream.get(), words(), &start, sizeof start);
}

DeviceState::~DeviceState() = default;

void open(Context& ctx, int device) {
    check_device(device);
    Q2_CUDA(cudaSetDevice(device));
    auto state = std::make_unique<DeviceState>(device);
    check_kernels_run(*state);
    ctx.backend = state.release();
}

void close(Context& ctx) {
    if (!ctx.backend) return;
    cudaStreamSynchronize(stream_of(ctx));
    delete &state_of(ctx);
    ctx.backend = nullptr;
}

std::string describe(Context& ctx) {
    cudaDeviceProp properties;
    Q2_CUDA(cudaGetDeviceProperties(&properties, state_of(ctx).device));
    return concat(properties.name, ", ", mebibytes(properties.totalGlobalMem), ", compute capability ",
                  properties.major, ".", properties.minor);
}

MemoryUse memory(Context&) {
    size_t free = 0, total = 0;
    Q2_CUDA(cudaMemGetInfo(&free, &total));
    return {total - free, total - free, total};
}

void* allocate(Context&, size_t bytes) { return make_device_bytes(std::max<size_t>(bytes, 1)).release(); }

/// Never throws: it also runs while an error unwinds, which on a failed device makes every call fail.
void release(Context&, void* data) { cudaFree(data); }

void* allocate_host(Context&, size_t bytes) {
    void* data = nullptr;
    if (cudaMallocHost(&data, std::max<size_t>(bytes, 1)) == cudaSuccess) return data;
    cudaGetLastError();  // the failed allocation must not be reported by a later call
    fail(Exit::device, "cannot page-lock ", mebibytes(bytes),
         " of host memory, which checkpoints are written from; "
         "free host memory, or raise the limit of the container");
}

void release_host(Context&, void* data) { cudaFreeHost(data); }

void upload(Context& ctx, void* device, const void* host, size_t bytes) {
    state_of(ctx).staging.upload(stream_of(ctx), device, host, bytes);
}

void download(Context& ctx, void* host, const void* device, size_t bytes) {
    if (bytes == 0) return;
    Q2_CUDA(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_of(ctx)));
    Q2_CUDA(cudaStreamSynchronize(stream_of(ctx)));
}

void copy(Context& ctx, void* to, const void* from, size_t bytes) {
    Q2_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_of(ctx)));
}

void zero(Context& ctx, void* device, size_t bytes) {
    Q2_CUDA(cudaMemsetAsync(device, 0, bytes, stream_of(ctx)));
}

void synchronize(Context& ctx) { Q2_CUDA(cudaStreamSynchronize(stream_of(ctx))); }

}  // namespace q2::cuda
