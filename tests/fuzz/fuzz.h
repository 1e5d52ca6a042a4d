// What the fuzz targets share. A target reads bytes of any kind: it may refuse them with an Error that says
// why, and nothing else. Everything else, a crash, another exception, a hang, too much memory, is a finding.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/check.h"

namespace q2::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
    return {reinterpret_cast<const char*>(data), size};
}

/// A file in memory, with a path, that holds the input at hand.
class InputFile {
  public:
    InputFile() : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
        if (descriptor_ < 0) std::abort();
        path_ = "/proc/self/fd/" + std::to_string(descriptor_);
    }
    const std::string& hold(const uint8_t* data, size_t size) {
        if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, data, size, 0) != ssize_t(size))
            std::abort();
        return path_;
    }

  private:
    int descriptor_;
    std::string path_;
};

/// Runs f. A message must be there, be short and name the file; a defect of the program is a finding.
template <class F>
void expect_value_or_error(std::string_view origin, F f) {
    try {
        f();
    } catch (const Error& e) {
        const std::string_view what = e.what();
        if (e.code == Exit::internal || what.size() < 5 || what.size() > 4096 ||
            what.find(origin) == what.npos)
            std::abort();
    }
}

}  // namespace q2::fuzz
