#include "train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/files.h"
#include "train/session.h"

namespace q2 {
namespace {

namespace fs = std::filesystem;

const std::string kConfig = "config.json", kLock = "lock";

std::string config_path(const std::string& run) { return run + "/" + kConfig; }

/// Settings that may change from one part of a run to the next: none of them changes a result.
constexpr const char* kMayChange[] = {
    "train.backend",    "train.device",    "train.threads", "train.stop_after", "train.max_seconds",
    "train.non_finite", "train.max_skips", "log.",          "checkpoint."};

bool may_change(std::string_view setting) {
    return std::any_of(std::begin(kMayChange), std::end(kMayChange),
                       [=](const char* prefix) { return setting.starts_with(prefix); });
}

void check_override(const std::string& assignment) {
    if (may_change(assignment)) return;
    std::string names;
    for (const std::string name : kMayChange) {
        const bool last = name == std::end(kMayChange)[-1];
        names += (names.empty() ? "" : last ? " and " : ", ") + name + (name.ends_with('.') ? "*" : "");
    }
    fail(Exit::usage, "--set ", assignment, ": a resumed run keeps what decides its results; only ", names,
         " can change");
}

/// The number in the lock's file, for a message.
std::string holder_of(int descriptor) {
    char text[32] = {};
    const ssize_t size = ::pread(descriptor, text, sizeof text - 1, 0);
    const std::string digits(text, size > 0 ? std::strspn(text, "0123456789") : 0);
    return digits.empty() ? "another process" : "process " + digits;
}

}  // namespace

std::string metrics_path(const std::string& run) { return run + "/metrics.jsonl"; }

RunLock::RunLock(const std::string& run) {
    const std::string path = run + "/" + kLock;
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    const int opened = errno;
    check(descriptor_ >= 0, Exit::data, path, ": cannot be written: ", std::strerror(opened),
          "; a run needs a folder that it may write to");
    const bool held = ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (held) {
        const std::string holder = holder_of(descriptor_);
        ::close(descriptor_);
        fail(Exit::usage, run, ": ", holder, " is training there; wait until it ends, or stop it");
    }
    // A file system without locks lets everyone in; so does one where the number cannot be written.
    const std::string number = std::to_string(::getpid()) + "\n";
    if (::ftruncate(descriptor_, 0) == 0 && ::pwrite(descriptor_, number.data(), number.size(), 0) < 0)
        std::fprintf(stderr, "%s: cannot be written: %s\n", path.c_str(), std::strerror(errno));
}

RunLock::~RunLock() { ::close(descriptor_); }

void check_free(const std::string& run) {
    std::error_code unreachable;  // told by make_run_folder
    if (!fs::exists(run, unreachable)) return;
    fs::directory_iterator entries(run, unreachable);
    const bool free = !unreachable && std::all_of(begin(entries), end(entries), [](const auto& entry) {
        const fs::path name = entry.path().filename();
        return name == kConfig + ".tmp" || name == kLock;
    });
    check(free, Exit::usage, run, " exists: go on with `quartet2 train --resume ", run,
          "`, or choose another --out");
}

void make_run_folder(const std::string& run) {
    std::error_code error;
    fs::create_directories(run, error);
    check(!error, Exit::data, run, ": cannot create the run's folder: ", error.message());
}

void write_config(const std::string& run, const Config& config) {
    write_file_atomic(config_path(run), config_to_json(config).dump(2) + "\n");
}

Config config_of_run(const std::string& run, const std::vector<std::string>& overrides) {
    for (const std::string& assignment : overrides) check_override(assignment);
    check(fs::is_directory(run), Exit::data, run, ": no such run folder");
    return load_config(config_path(run), overrides);
}

void check_same_config(const Config& config, const CheckpointMeta& meta, const std::string& run) {
    const nlohmann::json now = nlohmann::json(config_to_json(config)).flatten();
    const nlohmann::json saved = meta.config.flatten();
    for (const auto& [pointer, value] : now.items()) {
        std::string setting = pointer.substr(1);
        std::replace(setting.begin(), setting.end(), '/', '.');
        const bool same = !saved.contains(pointer) || saved[pointer] == value;
        check(same || may_change(setting), Exit::config, config_path(run), ": ", setting, " = ", value.dump(),
              ", but the run's checkpoint was made with ", saved.value(pointer, nlohmann::json()).dump(),
              ": put it back, or start a new run");
    }
}

CheckpointSearch search_checkpoints(const std::string& run) {
    CheckpointSearch search = find_latest_checkpoint(run);
    for (const SkippedCheckpoint& s : search.skipped)
        std::fprintf(stderr, "Skipped %s: %s\n", s.folder.c_str(), s.reason.c_str());
    return search;
}

RunCheckpoint open_run(const std::string& run) {
    const Config config = config_of_run(run);
    const CheckpointSearch search = search_checkpoints(run);
    check(search.folder.has_value(), Exit::data, run, ": no checkpoint that verifies; train it first");
    return {config, *search.folder, search.meta.step};
}

void load_checkpoint(Session& session, const RunCheckpoint& checkpoint) {
    try {
        session.load(checkpoint.folder);
    } catch (const Error& error) {
        std::error_code unreachable;
        check(fs::exists(checkpoint.folder, unreachable), Exit::data, checkpoint.folder,
              ": its training goes on and has removed it for a newer one meanwhile; run the command again");
        throw;
    }
}

}  // namespace q2
