#include "train/token_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "base/check.h"

namespace q2 {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

// llm.c (dev/data/data_common.py): magic and version of the GPT-2 and of the Llama-3 tokens.
constexpr uint32_t kMagic16 = 20240520, kVersion16 = 1, kMagic32 = 20240801, kVersion32 = 7;
constexpr size_t kHeaderBytes = 1024;
constexpr int64_t kMaxVocab16 = 65536;
constexpr int64_t kPiece = int64_t(1) << 16;  // tokens looked at together

/// The largest token, as a branch-free loop that vectorises.
template <class T>
uint32_t largest(const T* tokens, int64_t count) {
    T top = 0;
    for (int64_t i = 0; i < count; ++i) top = std::max(top, tokens[i]);
    return top;
}

/// The first of `count` tokens that is not below vocab, or -1.
template <class T>
int64_t first_beyond(const T* tokens, int64_t count, int64_t vocab) {
    if (count == 0 || largest(tokens, count) < vocab) return -1;
    return std::find_if(tokens, tokens + count, [=](T token) { return token >= vocab; }) - tokens;
}

}  // namespace

TokenFormat parse_token_format(const std::string& name) {
    if (name == "auto") return TokenFormat::automatic;
    if (name == "uint16") return TokenFormat::u16;
    check(name == "uint32", Exit::config, "data.format: \"", name, "\" is none of auto, uint16, uint32");
    return TokenFormat::u32;
}

/// Sets width and start and returns true if the file begins with llm.c's header.
bool TokenFile::read_header() {
    std::array<uint32_t, 3> header;
    if (file_.size() < sizeof header) return false;
    file_.read(0, sizeof header, header.data());
    if (header[0] != kMagic16 && header[0] != kMagic32) return false;
    width_ = header[0] == kMagic16 ? 2 : 4;
    const uint32_t version = width_ == 2 ? kVersion16 : kVersion32;
    check(header[1] == version, Exit::data, path(), ": version ", header[1],
          " of the token format with magic ", header[0], " is not supported (", version,
          " is); write the file again");
    check(file_.size() >= kHeaderBytes, Exit::data, path(), ": ", file_.size(),
          " bytes, its header alone takes ", kHeaderBytes, "; the file is truncated");
    start_ = kHeaderBytes;
    const size_t bytes = file_.size() - kHeaderBytes;
    const bool whole = bytes % size_t(width_) == 0;
    check(whole && uint32_t(bytes / size_t(width_)) == header[2], Exit::data, path(),
          ": the header announces ", header[2], " tokens (modulo 2^32), the file holds ",
          bytes / size_t(width_), whole ? "" : " and a part of one", "; it is truncated or damaged");
    return true;
}

TokenFile::TokenFile(const std::string& path, TokenFormat format, int64_t vocab)
    : file_(path), vocab_(vocab) {
    check(file_.size() > 0, Exit::data, path, ": the file is empty; make it with `quartet2 tokenize`");
    const bool headed = read_header();
    if (format == TokenFormat::automatic) {
        check(headed, Exit::data, path, ": no token header of llm.c (magic ", kMagic16, " or ", kMagic32,
              "); for a file without a header set data.format to uint16 or uint32, a text goes through "
              "`quartet2 tokenize` first");
    } else {
        check(!headed, Exit::data, path,
              ": begins with a token header, but data.format says that it has none; set data.format to auto");
        width_ = format == TokenFormat::u16 ? 2 : 4;
    }
    const size_t bytes = file_.size() - start_;
    check(bytes % size_t(width_) == 0, Exit::data, path, ": ", bytes, " bytes are not a whole number of uint",
          8 * width_, " tokens; check data.format");
    tokens_ = int64_t(bytes) / width_;
    check(width_ == 4 || vocab <= kMaxVocab16, Exit::data, path,
          ": holds uint16 tokens, too narrow for model.vocab = ", vocab, "; tokenise again as uint32");
}

void TokenFile::check_range(int64_t first, int64_t count) const {
    require(first >= 0 && count >= 0 && first <= tokens_ - count, path(), ": tokens ", first, " to ",
            first + count, " of ", tokens_);
}

template <class T>
void TokenFile::read_raw(int64_t first, int64_t count, T* out) const {
    file_.read(start_ + size_t(first) * sizeof(T), size_t(count) * sizeof(T), out);
}

template <class T>
int64_t TokenFile::find_beyond(int64_t first, int64_t count) const {
    std::vector<T> piece(size_t(std::min(count, kPiece)));
    for (const int64_t end = first + count; first < end; first += kPiece) {
        const int64_t size = std::min(kPiece, end - first);
        read_raw(first, size, piece.data());
        const int64_t beyond = first_beyond(piece.data(), size, vocab_);
        if (beyond >= 0) return first + beyond;
    }
    return -1;
}

int64_t TokenFile::find_beyond_vocab(int64_t first, int64_t count) const {
    check_range(first, count);
    return width_ == 2 ? find_beyond<uint16_t>(first, count) : find_beyond<uint32_t>(first, count);
}

void TokenFile::fail_beyond_vocab(int64_t position) const {
    uint32_t token = 0;
    file_.read(start_ + size_t(position * width_), size_t(width_), &token);
    fail(Exit::data, path(), ": token ", token, " at position ", position,
         " is not below model.vocab = ", vocab_,
         "; the file belongs to another tokenizer, or data.format is wrong");
}

void TokenFile::read(int64_t first, int64_t count, int32_t* out) const {
    check_range(first, count);
    const auto read_as = [&](auto* raw) {
        read_raw(first, count, raw);
        const int64_t beyond = first_beyond(raw, count, vocab_);
        if (beyond >= 0) fail_beyond_vocab(first + beyond);
    };
    if (width_ == 4) return read_as(reinterpret_cast<uint32_t*>(out));
    std::vector<uint16_t> narrow(static_cast<size_t>(count));
    read_as(narrow.data());
    std::copy(narrow.begin(), narrow.end(), out);
}

void write_token_header(AtomicFile& file, int width, int64_t tokens) {
    std::array<uint32_t, kHeaderBytes / sizeof(uint32_t)> header{};
    header[0] = width == 2 ? kMagic16 : kMagic32;
    header[1] = width == 2 ? kVersion16 : kVersion32;
    header[2] = uint32_t(tokens);
    file.write(header.data(), kHeaderBytes);
}

}  // namespace q2
