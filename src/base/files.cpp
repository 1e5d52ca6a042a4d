#include "base/files.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/check.h"

namespace q2 {
namespace {

namespace fs = std::filesystem;

/// Not in the same expression as the call that sets errno: it may be evaluated before it.
std::string reason() { return std::strerror(errno); }

class Descriptor {
  public:
    Descriptor(const std::string& path, int flags) : value(::open(path.c_str(), flags | O_CLOEXEC)) {}
    ~Descriptor() {
        if (value >= 0) ::close(value);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    const int value;
};

}  // namespace

/// A pipe would wait for its writer for ever: what is no regular file is refused before it is read.
RegularFile::RegularFile(const std::string& path)
    : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
    check(descriptor_ >= 0, Exit::data, path, ": cannot be opened: ", reason());
    try {
        struct stat status;
        const bool known = ::fstat(descriptor_, &status) == 0;
        check(known, Exit::data, path, ": ", reason());
        check(!S_ISDIR(status.st_mode), Exit::data, path, ": is a folder, not a regular file");
        check(S_ISREG(status.st_mode), Exit::data, path,
              ": not a regular file (a pipe, a device or a socket); copy what it gives into a file");
        size_ = size_t(status.st_size);
    } catch (...) {
        ::close(descriptor_);
        throw;
    }
}

RegularFile::~RegularFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

RegularFile::RegularFile(RegularFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

void RegularFile::read(size_t start, size_t count, void* out) const {
    for (size_t done = 0; done < count;) {
        const ssize_t got =
            ::pread(descriptor_, static_cast<char*>(out) + done, count - done, off_t(start + done));
        if (got < 0 && errno == EINTR) continue;
        check(got >= 0, Exit::data, path_, ": cannot be read: ", reason());
        check(got > 0, Exit::data, path_, ": ends at byte ", start + done, ", but had ", size_,
              " bytes when it was opened; somebody has cut it, put the whole file back");
        done += size_t(got);
    }
}

namespace {

/// take(bytes, size) for piece after piece of a regular file. Not mapped: a large file would count as this
/// process's memory, and one that is cut meanwhile would end it.
template <class Take>
void read_pieces(const std::string& path, Take take) {
    const RegularFile file(path);
    char piece[1 << 16];
    for (ssize_t got = 1; got != 0;) {
        got = ::read(file.descriptor(), piece, sizeof piece);
        if (got < 0 && errno == EINTR) continue;
        check(got >= 0, Exit::data, path, ": cannot be read: ", reason());
        take(piece, size_t(got));
    }
}

}  // namespace

std::string read_file(const std::string& path, size_t limit) {
    std::string bytes;
    read_pieces(path, [&](const char* piece, size_t size) {
        bytes.append(piece, size);
        check(bytes.size() <= limit, Exit::data, path, ": larger than the ", limit >> 20,
              " MiB that such a file may have; is it the right file?");
    });
    return bytes;
}

MappedFile::MappedFile(const std::string& path) : path_(path) {
    const RegularFile file(path);
    if (file.size() == 0) return;
    void* mapped = ::mmap(nullptr, file.size(), PROT_READ, MAP_SHARED, file.descriptor(), 0);
    check(mapped != MAP_FAILED, Exit::data, path, ": cannot be mapped: ", reason());
    data_ = static_cast<const uint8_t*>(mapped);
    size_ = file.size();
}

MappedFile::~MappedFile() {
    if (data_) ::munmap(const_cast<uint8_t*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

AtomicFile::AtomicFile(const std::string& path) : path_(path), beside_(path + ".tmp") {
    // The rename would put a file in the place of a device, a folder or a link.
    struct stat existing {};
    check(::lstat(path.c_str(), &existing) != 0 || S_ISREG(existing.st_mode), Exit::data, path,
          ": exists and is not a regular file; choose another name");
    // Neither follows a link to somebody else's file nor waits for a pipe's reader.
    descriptor_ =
        ::open(beside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    check(descriptor_ >= 0, Exit::data, beside_, ": cannot be written: ", reason());
}

AtomicFile::~AtomicFile() {
    if (descriptor_ < 0) return;
    ::close(descriptor_);
    ::unlink(beside_.c_str());
}

void AtomicFile::write(const void* bytes, size_t size) {
    checksum_.update(bytes, size);
    size_ += size;
    const auto* at = static_cast<const char*>(bytes);
    while (size > 0) {
        const ssize_t written = ::write(descriptor_, at, std::min<size_t>(size, size_t(1) << 30));
        if (written < 0 && errno == EINTR) continue;
        check(written > 0, Exit::data, beside_, ": cannot be written: ", reason());
        at += written;
        size -= size_t(written);
    }
}

FileSummary AtomicFile::commit() {
    const bool flushed = ::fsync(descriptor_) == 0;
    check(flushed, Exit::data, beside_, ": cannot be flushed: ", reason());
    const bool renamed = ::rename(beside_.c_str(), path_.c_str()) == 0;
    check(renamed, Exit::data, path_, ": cannot be renamed from ", beside_, ": ", reason());
    ::close(std::exchange(descriptor_, -1));
    sync_folder(fs::path(path_).parent_path());
    return {size_, checksum_.value()};
}

FileSummary write_file_atomic(const std::string& path, std::string_view contents) {
    AtomicFile file(path);
    file.write(contents);
    return file.commit();
}

void sync_folder(const std::string& folder) {
    const std::string name = folder.empty() ? "." : folder;
    const Descriptor descriptor(name, O_RDONLY | O_DIRECTORY);
    check(descriptor.value >= 0, Exit::data, name, ": cannot be opened: ", reason());
    // Some network file systems cannot flush a folder and say EINVAL; there is nothing better to do then.
    const bool flushed = ::fsync(descriptor.value) == 0 || errno == EINVAL;
    check(flushed, Exit::data, name, ": cannot be flushed: ", reason());
}

void make_folder(const std::string& folder) {
    std::error_code error;
    fs::create_directories(folder, error);
    check(!error, Exit::data, folder, ": the folder cannot be made: ", error.message());
}

uint64_t size_of_file(const std::string& path) { return RegularFile(path).size(); }

FileSummary summarize_file(const std::string& path) {
    FileSummary summary;
    Checksum checksum;
    read_pieces(path, [&](const char* piece, size_t size) {
        checksum.update(piece, size);
        summary.size += size;
    });
    summary.checksum = checksum.value();
    return summary;
}

std::vector<std::string> expand_glob(const std::string& pattern) {
    std::error_code ignored;
    if (fs::exists(pattern, ignored)) return {pattern};
    glob_t matches{};
    const int status = ::glob(pattern.c_str(), 0, nullptr, &matches);
    std::vector<std::string> paths(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
    ::globfree(&matches);
    check(status == 0 || status == GLOB_NOMATCH, Exit::data, pattern, ": the pattern cannot be expanded");
    const bool wild = pattern.find_first_of("*?[") != std::string::npos;
    check(!paths.empty(), Exit::data, pattern, wild ? ": no file matches this pattern" : ": no such file");
    std::sort(paths.begin(), paths.end());
    return paths;
}

}  // namespace q2
