// A power cut, as the worst that POSIX allows: data written since a file's last fsync is lost, a rename is
// undone unless its folder was flushed since, and every deletion has reached the disk.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace q2::test {

class PowerLoss {
  public:
    /// Before a write: notes how long the file is while all of it is flushed.
    void writes(int descriptor) {
        const std::lock_guard lock(mutex_);
        struct stat status;
        if (descriptor <= STDERR_FILENO || ::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode))
            return;
        // The copy of the descriptor finds the file again, whatever its name is by then.
        auto& unflushed = unflushed_[{status.st_dev, status.st_ino}];
        if (unflushed.copy < 0) unflushed = {::fcntl(descriptor, F_DUPFD_CLOEXEC, 100), status.st_size};
    }
    void flushed(int descriptor, const std::string& path) {
        const std::lock_guard lock(mutex_);
        std::erase_if(renames_,
                      [&](const auto& r) { return std::filesystem::path(r.second).parent_path() == path; });
        struct stat status;
        if (::fstat(descriptor, &status) != 0) return;
        const auto found = unflushed_.find({status.st_dev, status.st_ino});
        if (found == unflushed_.end()) return;
        ::syscall(SYS_close, found->second.copy);
        unflushed_.erase(found);
    }
    /// A name that was free. (What a rename replaced cannot be brought back, so those count as durable.)
    void renamed(const std::string& from, const std::string& to) {
        const std::lock_guard lock(mutex_);
        renames_.emplace_back(from, to);
    }
    [[noreturn]] void cut() {
        const std::lock_guard lock(mutex_);
        for (const auto& [file, unflushed] : unflushed_)
            ::syscall(SYS_ftruncate, unflushed.copy, unflushed.flushed_size);
        for (auto r = renames_.rbegin(); r != renames_.rend(); ++r)
            ::syscall(SYS_renameat2, AT_FDCWD, r->second.c_str(), AT_FDCWD, r->first.c_str(),
                      RENAME_NOREPLACE);
        for (;;) ::kill(::getpid(), SIGKILL);
    }

  private:
    struct Unflushed {
        int copy = -1;
        off_t flushed_size = 0;
    };
    std::mutex mutex_;
    std::map<std::pair<dev_t, ino_t>, Unflushed> unflushed_;
    std::vector<std::pair<std::string, std::string>> renames_;  ///< from, to
};

}  // namespace q2::test
