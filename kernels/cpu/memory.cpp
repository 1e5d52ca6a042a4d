// The CPU as a device: its memory is the host's, and every op is done when it returns.
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"
#include "tensor/arena.h"

namespace q2::cpu {
namespace {

std::string processor_name() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);)
        if (line.starts_with("model name") && line.find(": ") != std::string::npos)
            return line.substr(line.find(": ") + 2);
    return "unknown processor";
}

}  // namespace

void open(Context&, int) { check_blas(); }
void close(Context&) {}

std::string describe(Context&) { return concat("CPU, ", processor_name(), ", threads: ", thread_count()); }

void* allocate(Context&, size_t bytes) {
    constexpr size_t kAlign = Arena::kAlignment;
    const size_t blocks = bytes / kAlign + 1;  // at least one, so that no allocation is null
    void* const data = blocks > SIZE_MAX / kAlign ? nullptr : std::aligned_alloc(kAlign, blocks * kAlign);
    check(data, Exit::device, "cannot allocate ", bytes,
          " bytes of memory: use a smaller model, micro-batch or sequence");
    return data;
}

void release(Context&, void* data) { std::free(data); }

void upload(Context&, void* device, const void* host, size_t bytes) {
    if (bytes) std::memcpy(device, host, bytes);
}

void download(Context&, void* host, const void* device, size_t bytes) {
    if (bytes) std::memcpy(host, device, bytes);
}

void zero(Context&, void* device, size_t bytes) {
    if (bytes) std::memset(device, 0, bytes);
}

void synchronize(Context&) {}

}  // namespace q2::cpu
