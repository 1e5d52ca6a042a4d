// What every op gets: the table of operations, the backend's own state, and the scratch memory an op may use
// while it runs.
#pragma once

#include <cstddef>

#include "tensor/tensor.h"

namespace q2 {

struct Ops;

struct Context {
    const Ops* ops = nullptr;
    void* backend = nullptr;  ///< streams and library handles of a GPU; null on the CPU
    void* scratch = nullptr;  ///< free for one op at a time; sized by the scratch queries of the table
    size_t scratch_bytes = 0;
};

/// Carves an op's scratch; everything taken is free again when the op returns.
class Scratch {
  public:
    Scratch(Context& ctx, const char* op) : ctx_(ctx), op_(op) {}

    template <class T>
    T* take(int64_t count) {
        const size_t bytes = rounded(size_t(count) * sizeof(T));
        require(used_ + bytes <= ctx_.scratch_bytes, op_, " needs ", used_ + bytes, " bytes of scratch of ",
                ctx_.scratch_bytes, ": its scratch query is wrong");
        char* start = static_cast<char*>(ctx_.scratch) + used_;
        used_ += bytes;
        return reinterpret_cast<T*>(start);
    }
    /// Bytes that take() uses for `bytes`; scratch queries add these up.
    static constexpr size_t rounded(size_t bytes) { return (bytes + 255) / 256 * 256; }

  private:
    Context& ctx_;
    const char* op_;
    size_t used_ = 0;
};

}  // namespace q2
