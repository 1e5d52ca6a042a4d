// Token files (data/README.md gives the formats): llm.c's, 1024 bytes of header and then the tokens, or
// headerless little-endian integers. Counts are 64-bit everywhere. Read by position, not mapped: one that is
// cut while a run reads it gives an error.
#pragma once

#include <cstdint>
#include <string>

#include "base/files.h"

namespace q2 {

/// The config key data.format. `automatic` ("auto") reads the type from llm.c's header; the others are files
/// without a header.
enum class TokenFormat { automatic, u16, u32 };
TokenFormat parse_token_format(const std::string& name);

class TokenFile {
  public:
    /// Throws Exit::data when the header, the length or the format do not fit together, and when `vocab` is
    /// too wide for a file of uint16.
    TokenFile(const std::string& path, TokenFormat format, int64_t vocab);

    const std::string& path() const { return file_.path(); }
    int64_t tokens() const { return tokens_; }
    int64_t vocab() const { return vocab_; }
    /// Copies tokens first .. first+count-1; throws, with file and position, at one that is not below vocab.
    void read(int64_t first, int64_t count, int32_t* out) const;
    /// The first position in first .. first+count-1 whose token is not below vocab, or -1.
    int64_t find_beyond_vocab(int64_t first, int64_t count) const;
    [[noreturn]] void fail_beyond_vocab(int64_t position) const;

  private:
    RegularFile file_;
    int64_t vocab_;
    size_t start_ = 0;  ///< of the tokens, in bytes
    int width_ = 0;     ///< bytes a token: 2 or 4
    int64_t tokens_ = 0;

    bool read_header();
    void check_range(int64_t first, int64_t count) const;
    template <class T>
    void read_raw(int64_t first, int64_t count, T* out) const;
    template <class T>
    int64_t find_beyond(int64_t first, int64_t count) const;
};

/// Writes llm.c's header for `tokens` tokens (its third integer holds the low 32 bits of the count); the
/// tokens, `width` bytes each, follow.
void write_token_header(AtomicFile& file, int width, int64_t tokens);

}  // namespace q2
