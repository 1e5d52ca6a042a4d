// A library to preload (LD_PRELOAD) that makes chosen calls on chosen files fail, lie, wait, or end the
// process; fault_rules.h says how they are chosen.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "tests/faults/fault_rules.h"
#include "tests/faults/power_loss.h"

namespace {

using namespace q2::test;

/// Unflushed data is followed only where a rule may cut the power.
PowerLoss* power() {
    static const bool wanted =
        std::any_of(rules().begin(), rules().end(), [](const Rule& r) { return r.kind == Action::power; });
    static auto& loss = *new PowerLoss;
    return wanted ? &loss : nullptr;
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
