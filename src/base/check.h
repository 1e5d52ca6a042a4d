// Errors: thrown on the host where a fact is known, caught once in main. A message names the file, key, shape
// or value and says what to do.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace q2 {

/// Process exit codes, documented in README.md.
enum class Exit : int {
    ok = 0,
    internal = 1,     ///< a defect of this program, or of a library below it
    usage = 2,        ///< the command line
    config = 3,       ///< a key or value of a config or recipe
    data = 4,         ///< a file: missing, malformed, too short, not writable
    non_finite = 5,   ///< training stopped on a NaN or an infinity
    device = 6,       ///< no usable device, or not enough memory on it
    interrupted = 7,  ///< SIGINT, SIGTERM or SIGHUP; a checkpoint was saved
    time_limit = 8,   ///< train.max_seconds are over; a checkpoint was saved
};

class Error : public std::runtime_error {
  public:
    Error(Exit code, const std::string& what) : std::runtime_error(what), code(code) {}
    Exit code;
};

template <class... Parts>
std::string concat(const Parts&... parts) {
    std::ostringstream text;
    (text << ... << parts);
    return text.str();
}

template <class... Parts>
[[noreturn]] void fail(Exit code, const Parts&... parts) {
    throw Error(code, concat(parts...));
}

/// Throws Error(code, parts...) unless `condition` holds; the parts are joined only then.
template <class... Parts>
void check(bool condition, Exit code, const Parts&... parts) {
    if (!condition) fail(code, parts...);
}

/// A condition that only a defect of this program can break.
template <class... Parts>
void require(bool condition, const Parts&... parts) {
    if (!condition) fail(Exit::internal, parts...);
}

}  // namespace q2
