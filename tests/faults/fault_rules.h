// The rules by which calls on files go wrong, from the environment.
//
// QUARTET2_FAULTS holds rules separated by ';', each of four words, CALL NTH ACTION GLOB:
// - CALL is write, fsync, rename, open (for writing), read (open for reading), mkdir, truncate, unlink or
// close.
// - NTH is 3 for the third such call on a matching path, 3+ for that one and all later ones.
// - ACTION is one of
//   - ENOSPC, EIO, ...: the call does nothing and fails with this error;
//   - short: half of a write is done, and the return value says so;
//   - lie: half of a write, or nothing of another call, is done, and success is claimed;
//   - kill, kill_after: SIGKILL before the call (in a write: in its middle) or after it;
//   - power: like kill, and what had not been flushed is lost (power_loss.h);
//   - wait=US: the call is made US microseconds later.
// - GLOB is fnmatch's, where * spans folders too; a rename matches by either of its paths.
//
// QUARTET2_FAULT_LOG names a file that gets a line for each fault but waits: a test sees that it was reached.
#pragma once

#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <sstream>
#include <string>
#include <utility>

namespace q2::test {

enum class Action { none, error, shorten, lie, kill, kill_after, power, wait };

struct Rule {
    std::string call, action, glob;
    long nth = 0, microseconds = 0;
    bool lasting = false;
    Action kind = Action::none;
    int error = 0;
    std::atomic<long> seen = 0;
};

inline int error_of(const std::string& name) {
    for (int error = 1; error < 200; ++error)
        if (const char* known = ::strerrorname_np(error); known && name == known) return error;
    return 0;
}

/// A rule that cannot be read must not become a test that passes.
[[noreturn]] inline void reject(const std::string& rule) {
    ::fprintf(stderr, "fault_injection: not CALL NTH ACTION GLOB: \"%s\"\n", rule.c_str());
    ::_exit(99);
}

inline void parse(const std::string& text, Rule& rule) {
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

inline std::deque<Rule>& rules() {
    static std::deque<Rule>& all = *[] {
        auto* parsed = new std::deque<Rule>;  // outlives every thread
        const char* text = ::getenv("QUARTET2_FAULTS");
        std::istringstream list(text ? text : "");
        for (std::string one; std::getline(list, one, ';');) parse(one, parsed->emplace_back());
        return parsed;
    }();
    return all;
}

inline void log_fault(const Rule& rule, const std::string& path) {
    const char* file = ::getenv("QUARTET2_FAULT_LOG");
    if (!file) return;
    const std::string line = rule.call + " " + rule.action + " " + path + "\n";
    const int out = int(::syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND, 0600));
    ::syscall(SYS_write, out, line.data(), line.size());
    ::syscall(SYS_close, out);
}

inline std::string path_of(int descriptor) {
    char path[4096];
    const ssize_t size =
        ::readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), path, sizeof path);
    return {path, size_t(std::max<ssize_t>(size, 0))};
}

/// The rule whose turn this call is, or null. Waits are made here.
inline const Rule* fault_of(const char* call, const std::string& path, const std::string& other = "") {
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
            log_fault(rule, path);
            fault = &rule;
        }
    }
    errno = saved;
    return fault;
}

}  // namespace q2::test
