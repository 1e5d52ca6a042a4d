#include "train/data_loader.h"

#include <omp.h>

#include <algorithm>

#include "base/check.h"
#include "train/permutation.h"

namespace q2 {
namespace {

constexpr int64_t kScanChunk = int64_t(1) << 22;

int64_t windows_of(const TokenFile& file, int64_t sequence) {
    return std::max<int64_t>(file.tokens() - 1, 0) / sequence;
}

/// The first position beyond the vocabulary among the first `count` tokens, or -1.
int64_t scan(const TokenFile& file, int64_t count) {
    int64_t first_bad = count;
#pragma omp parallel for schedule(dynamic) reduction(min : first_bad)
    for (int64_t start = 0; start < count; start += kScanChunk) {
        const int64_t bad = file.find_beyond_vocab(start, std::min(kScanChunk, count - start));
        if (bad >= 0) first_bad = std::min(first_bad, bad);
    }
    return first_bad == count ? -1 : first_bad;
}

}  // namespace

DataLoader::DataLoader(const DataSettings& settings, SampleOrder order, uint64_t seed)
    : sequence_(settings.sequence), order_(order), seed_(seed) {
    require(sequence_ > 0, "windows of ", sequence_, " tokens");
    const TokenFormat format = parse_token_format(settings.format);
    for (const std::string& pattern : settings.patterns)
        for (const std::string& path : expand_glob(pattern))
            files_.emplace_back(path, format, settings.vocab);
    check(!files_.empty(), Exit::data, "no token files are given: set data.train and data.val");
    int64_t longest = 0;
    for (const TokenFile& file : files_) {
        longest = std::max(longest, file.tokens());
        windows_ += windows_of(file, sequence_);
        ends_.push_back(windows_);
    }
    check(windows_ > 0, Exit::data, files_[0].path(), files_.size() > 1 ? " and the other files" : "",
          ": a window takes data.sequence + 1 = ", sequence_ + 1, " tokens, the longest file has ", longest,
          "; give more data or a shorter data.sequence");
    check_vocabulary(settings.checked_at_start);
}

void DataLoader::check_vocabulary(int64_t tokens) const {
    for (const TokenFile& file : files_) {
        const int64_t count = std::min(file.tokens(), tokens);
        const int64_t beyond = scan(file, count);
        if (beyond >= 0) file.fail_beyond_vocab(beyond);
        tokens -= count;
    }
}

int64_t DataLoader::tokens() const {
    int64_t total = 0;
    for (const TokenFile& file : files_) total += file.tokens();
    return total;
}

std::vector<std::string> DataLoader::unused_files() const {
    std::vector<std::string> paths;
    for (const TokenFile& file : files_)
        if (windows_of(file, sequence_) == 0) paths.push_back(file.path());
    return paths;
}

DataLoader::Location DataLoader::location(int64_t sample) const {
    require(sample >= 0, "sample ", sample);
    const int64_t epoch = sample / windows_, position = sample % windows_;
    const int64_t window = order_ == SampleOrder::sequential
                               ? position
                               : Permutation(windows_, seed_, uint64_t(epoch))(position);
    const auto file = std::upper_bound(ends_.begin(), ends_.end(), window) - ends_.begin();
    const int64_t before = file == 0 ? 0 : ends_[size_t(file) - 1];
    return {epoch, file, (window - before) * sequence_};
}

void DataLoader::fill(int64_t first_sample, int64_t count, int32_t* inputs, int32_t* targets) const {
    std::vector<int32_t> window(size_t(sequence_ + 1));
    for (int64_t i = 0; i < count; ++i) {
        const Location at = location(first_sample + i);
        files_[size_t(at.file)].read(at.offset, sequence_ + 1, window.data());
        std::copy_n(window.begin(), sequence_, inputs + i * sequence_);
        std::copy_n(window.begin() + 1, sequence_, targets + i * sequence_);
    }
}

}  // namespace q2
