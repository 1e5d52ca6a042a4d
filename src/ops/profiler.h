// A table that times the slots of another: a context that runs on it knows how long each op took. It waits
// for the device before and after every op, so a step takes longer than it does without it.
#pragma once

#include <map>
#include <string>

#include "ops/ops.h"

namespace q2 {

class Profiler : public Ops {
  public:
    /// Lends itself to ctx as its table until it is destroyed.
    explicit Profiler(Context& ctx);
    ~Profiler();
    Profiler(const Profiler&) = delete;
    Profiler& operator=(const Profiler&) = delete;

    struct Entry {
        double seconds = 0;
        int64_t calls = 0;
    };
    const std::map<std::string, Entry>& entries() const { return entries_; }  ///< by slot

  private:
    friend struct ProfilerWrapper;

    Context& ctx_;
    const Ops* real_;
    std::map<std::string, Entry> entries_;
};

}  // namespace q2
