// A library to preload (LD_PRELOAD) that makes chosen calls on chosen files fail, lie, wait, or end the
// process.
//
//   QUARTET2_FAULTS     rules separated by ';', each of four words: CALL NTH ACTION GLOB
//     CALL     write, fsync, rename, open (for writing), read (open for reading), mkdir, truncate, unlink,
//     close NTH      3: the third such call on a matching path; 3+: that one and all later ones ACTION
//     ENOSPC, EIO, ...  the call does nothing and fails with this error
//              short             half of a write is done, and the return value says so
//              lie               half of a write, or nothing of another call, is done, and success is claimed
//              kill, kill_after  SIGKILL before the call (in a write: in its middle) or after it
//              power             like kill, and what had not been flushed is lost (power_loss.h)
//              wait=US           the call is made US microseconds later
//     GLOB     of fnmatch, where * spans folders too; a rename matches by either of its paths
//   QUARTET2_FAULT_LOG  a file that gets a line for each fault but waits, so that a test knows it was reached
#include <dlfcn.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <sstream>
#include <string>

#include "tests/faults/power_loss.h"

namespace {

enum class Action { none, error, shorten, lie, kill, kill_after, power, wait };

struct Rule {
    std::string call, action, glob;
    long nth = 0, microseconds = 0;
    bool lasting = false;
    Action kind = Action::none;
    int error = 0;
    std::atomic<long> seen = 0;
};

int error_of(const std::string& name) {
    for (int error = 1; error < 200; ++error)
        if (const char* known = ::strerrorname_np(error); known && name == known) return error;
    return 0;
}

/// A rule that cannot be read must not become a test that passes.
[[noreturn]] void reject(const std::string& rule) {
    ::fprintf(stderr, "fault_injection: not CALL NTH ACTION GLOB: \"%s\"\n", rule.c_str());
    ::_exit(99);
}

void parse(const std::string& text, Rule& rule) {
    std::istringstream words(text);
    std::string nth;
    if (!(words >> rule.call >> nth >> rule.action >> rule.glob)) reject(text);
    rule.nth = ::atol(nth.c_str());
    rule.lasting = nth.back() == '+';
    static const std::pair<const char*, Action> kActions[] = {
        {"short", Action::shorten},         {"lie", Action::lie},     {"kill", Action::kill},
        {"kill_after", Action::kill_after}, {"power", Action::power}, {"wait=", Action::wait}};
    for (const auto& [name, action] : kActions)
        if (rule.action == name || (action == Action::wait && rule.action.starts_with(name)))
            rule.kind = action;
    if (rule.kind == Action::wait) rule.microseconds = ::atol(rule.action.c_str() + 5);
    rule.error = error_of(rule.action);
    if (rule.error) rule.kind = Action::error;
    if (rule.kind == Action::none || rule.nth < 1) reject(text);
}

std::deque<Rule>& rules() {
    static std::deque<Rule>& all = *[] {
        auto* parsed = new std::deque<Rule>;  // outlives every thread
        const char* text = ::getenv("QUARTET2_FAULTS");
        std::istringstream list(text ? text : "");
        for (std::string one; std::getline(list, one, ';');) parse(one, parsed->emplace_back());
        return parsed;
    }();
    return all;
}

/// Unflushed data is followed only where a rule may cut the power.
q2::test::PowerLoss* power() {
    static const bool wanted =
        std::any_of(rules().begin(), rules().end(), [](const Rule& r) { return r.kind == Action::power; });
    static auto& loss = *new q2::test::PowerLoss;
    return wanted ? &loss : nullptr;
}

void log(const Rule& rule, const std::string& path) {
    const char* file = ::getenv("QUARTET2_FAULT_LOG");
    if (!file) return;
    const std::string line = rule.call + " " + rule.action + " " + path + "\n";
    const int out = int(::syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND, 0600));
    ::syscall(SYS_write, out, line.data(), line.size());
    ::syscall(SYS_close, out);
}

std::string path_of(int descriptor) {
    char path[4096];
    const ssize_t size =
        ::readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), path, sizeof path);
    return {path, size_t(std::max<ssize_t>(size, 0))};
}

/// The rule whose turn this call is, or null. Waits are made here.
const Rule* fault_of(const char* call, const std::string& path, const std::string& other = "") {
    const int saved = errno;
    const Rule* fault = nullptr;
    for (Rule& rule : rules()) {
        const auto matches = [&](const std::string& p) {
            return !p.empty() && ::fnmatch(rule.glob.c_str(), p.c_str(), 0) == 0;
        };
        if (rule.call != call || !(matches(path) || matches(other))) continue;
        const long number = ++rule.seen;
        if (number != rule.nth && !(rule.lasting && number > rule.nth)) continue;
        if (rule.kind == Action::wait) {
            ::usleep(useconds_t(rule.microseconds));
        } else if (!fault) {
            log(rule, path);
            fault = &rule;
        }
    }
    errno = saved;
    return fault;
}

[[noreturn]] void die() {
    for (;;) ::kill(::getpid(), SIGKILL);
}

/// The call, or what its rule puts in the place of it. `failed` is what it returns with errno set.
template <class Perform, class Result>
Result replaced(const Rule* fault, Result failed, Result claimed, Perform perform) {
    if (!fault) return perform();
    switch (fault->kind) {
        case Action::error:
            errno = fault->error;
            return failed;
        case Action::lie:
            return claimed;
        case Action::power:
            power()->cut();
        case Action::kill:
            die();
        case Action::kill_after:
            perform();
            die();
        default:
            return perform();
    }
}

template <class Perform>
int maybe(const Rule* fault, Perform perform) {
    return replaced(fault, -1, 0, perform);
}

/// A write of `size` bytes by perform(bytes), which writes that many from the start.
template <class Perform>
ssize_t maybe_write(int descriptor, size_t size, Perform perform) {
    if (power()) power()->writes(descriptor);
    const Rule* fault = fault_of("write", path_of(descriptor));
    const size_t half = std::max<size_t>(size / 2, std::min<size_t>(size, 1));
    if (fault && fault->kind == Action::shorten) return perform(half);
    const bool half_done = fault && fault->kind != Action::error && fault->kind != Action::kill_after;
    if (half_done) perform(half);
    return replaced(fault, ssize_t(-1), ssize_t(size), [&] { return perform(size); });
}

/// Flushes are only claimed: no test needs them, and they would be most of its time.
int maybe_fsync(int descriptor) {
    const int result = maybe(fault_of("fsync", path_of(descriptor)), [] { return 0; });
    if (result == 0 && power()) power()->flushed(descriptor, path_of(descriptor));
    return result;
}

template <class Perform>
int maybe_rename(const char* from, const char* to, bool exchange, Perform perform) {
    const Rule* fault = fault_of("rename", to, from);
    const bool undoable = !exchange && ::access(to, F_OK) != 0;
    const int result = maybe(fault, perform);
    if (result == 0 && undoable && power()) power()->renamed(from, to);
    return result;
}

bool writes(int flags) { return (flags & O_ACCMODE) != O_RDONLY; }

const Rule* fault_of_open(const char* path, bool for_writing) {
    return fault_of(for_writing ? "open" : "read", path);
}

int mode_of(int flags, va_list list) { return flags & (O_CREAT | __O_TMPFILE) ? va_arg(list, int) : 0; }

}  // namespace

// The name's next definition, which is the C library's (or a sanitizer's).
#define NEXT(name) reinterpret_cast<decltype(&::name)>(::dlsym(RTLD_NEXT, #name))

extern "C" {

ssize_t write(int descriptor, const void* bytes, size_t size) {
    return maybe_write(descriptor, size, [&](size_t n) { return NEXT(write)(descriptor, bytes, n); });
}
ssize_t pwrite(int descriptor, const void* bytes, size_t size, off_t at) {
    return maybe_write(descriptor, size, [&](size_t n) { return NEXT(pwrite)(descriptor, bytes, n, at); });
}
ssize_t pwrite64(int descriptor, const void* bytes, size_t size, off64_t at) {
    return maybe_write(descriptor, size, [&](size_t n) { return NEXT(pwrite64)(descriptor, bytes, n, at); });
}
ssize_t writev(int descriptor, const iovec* parts, int count) {
    size_t size = 0;
    for (int i = 0; i < count; ++i) size += parts[i].iov_len;
    return maybe_write(descriptor, size, [&](size_t n) {
        return n < size ? NEXT(write)(descriptor, parts[0].iov_base, std::min(n, parts[0].iov_len))
                        : NEXT(writev)(descriptor, parts, count);
    });
}
size_t fwrite(const void* bytes, size_t size, size_t count, FILE* stream) {
    const Rule* fault = fault_of("write", path_of(::fileno(stream)));
    return replaced(fault, size_t(0), count, [&] { return NEXT(fwrite)(bytes, size, count, stream); });
}

int fsync(int descriptor) { return maybe_fsync(descriptor); }
int fdatasync(int descriptor) { return maybe_fsync(descriptor); }
int close(int descriptor) {
    return maybe(fault_of("close", path_of(descriptor)), [&] { return NEXT(close)(descriptor); });
}
int ftruncate(int descriptor, off_t size) noexcept {
    return maybe(fault_of("truncate", path_of(descriptor)),
                 [&] { return NEXT(ftruncate)(descriptor, size); });
}
int ftruncate64(int descriptor, off64_t size) noexcept {
    return maybe(fault_of("truncate", path_of(descriptor)),
                 [&] { return NEXT(ftruncate64)(descriptor, size); });
}
int truncate(const char* path, off_t size) noexcept {
    return maybe(fault_of("truncate", path), [&] { return NEXT(truncate)(path, size); });
}

int rename(const char* from, const char* to) noexcept {
    return maybe_rename(from, to, false, [&] { return NEXT(rename)(from, to); });
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
    return maybe_rename(from, to, false, [&] { return NEXT(renameat)(from_folder, from, to_folder, to); });
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
    return maybe_rename(from, to, flags & RENAME_EXCHANGE,
                        [&] { return NEXT(renameat2)(from_folder, from, to_folder, to, flags); });
}

int mkdir(const char* path, mode_t mode) noexcept {
    return maybe(fault_of("mkdir", path), [&] { return NEXT(mkdir)(path, mode); });
}
int unlink(const char* path) noexcept {
    return maybe(fault_of("unlink", path), [&] { return NEXT(unlink)(path); });
}
int rmdir(const char* path) noexcept {
    return maybe(fault_of("unlink", path), [&] { return NEXT(rmdir)(path); });
}
int unlinkat(int folder, const char* path, int flags) noexcept {
    const std::string whole = folder == AT_FDCWD ? path : path_of(folder) + "/" + path;
    return maybe(fault_of("unlink", whole), [&] { return NEXT(unlinkat)(folder, path, flags); });
}

#define DEFINE_OPEN(name)                                               \
    int name(const char* path, int flags, ...) {                        \
        va_list list;                                                   \
        va_start(list, flags);                                          \
        const int mode = mode_of(flags, list);                          \
        va_end(list);                                                   \
        return replaced(fault_of_open(path, writes(flags)), -1, -1,     \
                        [&] { return NEXT(name)(path, flags, mode); }); \
    }
DEFINE_OPEN(open)
DEFINE_OPEN(open64)

#define DEFINE_OPENAT(name)                                                     \
    int name(int folder, const char* path, int flags, ...) {                    \
        va_list list;                                                           \
        va_start(list, flags);                                                  \
        const int mode = mode_of(flags, list);                                  \
        va_end(list);                                                           \
        return replaced(fault_of_open(path, writes(flags)), -1, -1,             \
                        [&] { return NEXT(name)(folder, path, flags, mode); }); \
    }
DEFINE_OPENAT(openat)
DEFINE_OPENAT(openat64)

FILE* fopen(const char* path, const char* mode) {
    return replaced(fault_of_open(path, *mode != 'r'), (FILE*)nullptr, (FILE*)nullptr,
                    [&] { return NEXT(fopen)(path, mode); });
}
FILE* fopen64(const char* path, const char* mode) {
    return replaced(fault_of_open(path, *mode != 'r'), (FILE*)nullptr, (FILE*)nullptr,
                    [&] { return NEXT(fopen64)(path, mode); });
}

}  // extern "C"
