// Owns an opened backend: the table, the device's state and the scratch memory. Chosen once, at start.
#pragma once

#include <string>

#include "ops/ops.h"

namespace q2 {

class Backend {
  public:
    /// choice: "cpu", "cuda", or "auto" (a usable GPU, else the CPU); device: the GPU's number.
    Backend(const std::string& choice, int device);
    ~Backend();
    Backend(const Backend&) = delete;
    Backend& operator=(const Backend&) = delete;

    Context& context() { return ctx_; }
    const Ops& ops() const { return *ctx_.ops; }

  private:
    Context ctx_;
};

/// Device memory of a backend, freed at the end of its scope.
class DeviceMemory {
  public:
    DeviceMemory(Context& ctx, size_t bytes)
        : ctx_(&ctx), data_(ctx.ops->allocate(ctx, bytes)), bytes_(bytes) {}
    ~DeviceMemory() { ctx_->ops->release(*ctx_, data_); }
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;

    void* data() const { return data_; }
    size_t bytes() const { return bytes_; }

  private:
    Context* ctx_;
    void* data_;
    size_t bytes_;
};

/// Memory of the host that a backend downloads into, freed at the end of its scope.
class HostMemory {
  public:
    HostMemory(Context& ctx, size_t bytes)
        : ctx_(&ctx), data_(ctx.ops->allocate_host(ctx, bytes)), bytes_(bytes) {}
    ~HostMemory() { ctx_->ops->release_host(*ctx_, data_); }
    HostMemory(const HostMemory&) = delete;
    HostMemory& operator=(const HostMemory&) = delete;

    void* data() const { return data_; }
    size_t bytes() const { return bytes_; }

  private:
    Context* ctx_;
    void* data_;
    size_t bytes_;
};

/// Lends the context scratch memory until the end of the scope, as a session does for its life.
class LentScratch {
  public:
    LentScratch(Context& ctx, size_t bytes) : memory_(ctx, bytes), ctx_(ctx) {
        ctx.scratch = memory_.data();
        ctx.scratch_bytes = bytes;
    }
    ~LentScratch() { ctx_.scratch = nullptr, ctx_.scratch_bytes = 0; }
    LentScratch(const LentScratch&) = delete;
    LentScratch& operator=(const LentScratch&) = delete;

  private:
    DeviceMemory memory_;
    Context& ctx_;
};

}  // namespace q2
