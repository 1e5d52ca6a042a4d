// Files: reads by position, read-only mappings, writes that are whole or not there, checksums, globs. Errors
// are Exit::data and name the path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/checksum.h"

namespace q2 {

/// A regular file held open for reading by position. Where somebody cuts it meanwhile, a read throws; a
/// mapping would end the process.
class RegularFile {
  public:
    explicit RegularFile(const std::string& path);
    ~RegularFile();
    RegularFile(RegularFile&& other) noexcept;
    RegularFile& operator=(RegularFile&&) = delete;

    size_t size() const { return size_; }  ///< when it was opened
    const std::string& path() const { return path_; }
    int descriptor() const { return descriptor_; }
    /// Bytes start .. start+count-1, all of them, into `out`.
    void read(size_t start, size_t count, void* out) const;

  private:
    std::string path_;
    int descriptor_ = -1;
    size_t size_ = 0;
};

/// A regular file, mapped whole and read-only. An empty file has size 0 and a null address.
class MappedFile {
  public:
    explicit MappedFile(const std::string& path);
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;

    const uint8_t* data() const { return data_; }
    size_t size() const { return size_; }
    const std::string& path() const { return path_; }
    std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

  private:
    std::string path_;
    const uint8_t* data_ = nullptr;
    size_t size_ = 0;
};

/// The bytes of a regular file of at most `limit` bytes.
std::string read_file(const std::string& path, size_t limit);

/// What a file holds, as a manifest records it.
struct FileSummary {
    uint64_t size = 0;
    uint64_t checksum = 0;  ///< XXH64
};

/// Writes PATH.tmp; commit() makes it PATH, whole and on the disk. Without a commit nothing stays behind.
class AtomicFile {
  public:
    explicit AtomicFile(const std::string& path);
    ~AtomicFile();
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    void write(const void* bytes, size_t size);
    void write(std::string_view text) { write(text.data(), text.size()); }
    /// Flushes the file, renames it over PATH, flushes the folder.
    FileSummary commit();
    const std::string& path() const { return path_; }

  private:
    std::string path_, beside_;
    int descriptor_ = -1;
    uint64_t size_ = 0;
    Checksum checksum_;
};

FileSummary write_file_atomic(const std::string& path, std::string_view contents);

/// Makes renames and new names inside `folder` durable.
void sync_folder(const std::string& folder);

/// Like `mkdir -p`.
void make_folder(const std::string& folder);

/// Size and checksum of the bytes on the disk.
FileSummary summarize_file(const std::string& path);
uint64_t size_of_file(const std::string& path);

/// The files that a path or a shell pattern (* ? [...]) names, sorted by byte values. A file of exactly that
/// name wins over the pattern. Throws, naming the pattern, when nothing matches.
std::vector<std::string> expand_glob(const std::string& pattern);

}  // namespace q2
