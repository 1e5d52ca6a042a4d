// The CPU as a device: its memory is the host's, and every op is done when it returns.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

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

/// The number after `key` in a file of "key: number unit" lines; 0 if there is none.
size_t number_after(const char* path, const std::string& key) {
    std::ifstream file(path);
    size_t value = 0;
    for (std::string line; std::getline(file, line);)
        if (line.starts_with(key)) std::istringstream(line.substr(key.size())) >> value;
    return value;
}

/// The container's limit on memory; none is a number too large to matter.
size_t container_limit() {
    size_t limit = 0;
    std::ifstream("/sys/fs/cgroup/memory.max") >> limit;  // "max" leaves 0
    return limit ? limit : SIZE_MAX;
}

}  // namespace

MemoryUse memory(Context&) {
    return {number_after("/proc/self/status", "VmRSS:") << 10,
            number_after("/proc/self/status", "VmHWM:") << 10,
            std::min(number_after("/proc/meminfo", "MemTotal:") << 10, container_limit())};
}

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

void copy(Context&, void* to, const void* from, size_t bytes) {
    if (bytes) std::memcpy(to, from, bytes);
}

void zero(Context&, void* device, size_t bytes) {
    if (bytes) std::memset(device, 0, bytes);
}

void synchronize(Context&) {}

}  // namespace q2::cpu
