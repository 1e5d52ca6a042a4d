// What ctx.backend points to: a device, its one compute stream, and the library handles and pinned memory
// that go with it. All RAII; opened and closed by the table.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <array>
#include <map>
#include <memory>

#include "kernels/cuda/device/check_cuda.h"
#include "ops/ops.h"

namespace q2::cuda {

/// Owns a CUDA or cuBLASLt handle; Destroy is the library's function.
template <class Handle, auto Destroy>
struct Destroyer {
    using pointer = Handle;
    void operator()(Handle handle) const { Destroy(handle); }
};
template <class Handle, auto Destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroyer<Handle, Destroy>>;

using Stream = Owned<cudaStream_t, cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, cudaEventDestroy>;
using LtHandle = Owned<cublasLtHandle_t, cublasLtDestroy>;
using PinnedBytes = Owned<void*, cudaFreeHost>;
using DeviceBytes = Owned<void*, cudaFree>;

/// Copies host memory to the device through page-locked slots, so that upload() returns once the source has
/// been read, not once it has arrived.
class StagingRing {
  public:
    explicit StagingRing();
    void upload(cudaStream_t, void* device, const void* host, size_t bytes);

  private:
    static constexpr size_t kSlots = 4, kSlotBytes = size_t(4) << 20;
    PinnedBytes memory_;
    std::array<Event, kSlots> copied_;  ///< the slot's last copy is done
    size_t next_ = 0;
};

struct MatmulPlan;  // of matmul.cpp

/// Words in device memory that ops read and write between themselves.
struct DeviceWords {
    float zero, one;
    float alpha;  ///< product of two tensor scales
    unsigned long long count;
};

struct DeviceState {
    int device;
    int shared_memory;    ///< bytes a block may ask for
    bool hopper = false;  ///< its code is for sm_90a: device/hopper.h
    Stream stream;
    LtHandle lt;
    DeviceBytes words_memory;
    StagingRing staging;
    std::map<MatmulChoice::Product, std::unique_ptr<MatmulPlan>> plans;
    std::map<MatmulChoice::Product, MatmulChoice::Algorithm> chosen;  ///< earlier, by another process
    bool time_matmuls = false;

    explicit DeviceState(int device);
    ~DeviceState();

    DeviceWords* words() const { return static_cast<DeviceWords*>(words_memory.get()); }
};

/// Throws unless this binary holds kernels for the device; finds out whether they are Hopper's own.
void check_kernels_run(DeviceState&);

inline DeviceState& state_of(Context& ctx) { return *static_cast<DeviceState*>(ctx.backend); }
inline cudaStream_t stream_of(Context& ctx) { return state_of(ctx).stream.get(); }

}  // namespace q2::cuda
