// Which tokens a sample holds. A sample's number is global (step * sequences a step + index in the step), and
// with the seed it alone decides the window, whatever the number of ranks: nothing needs to be saved.
//
// A window is T+1 tokens of one file, at a multiple of T: neighbours share one token, the last target of the
// one and the first input of the other. What is left at a file's end is not used.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/token_file.h"

namespace q2 {

struct DataSettings {
    std::vector<std::string> patterns;  ///< paths or globs, in order
    std::string format = "auto";        ///< auto, uint16 or uint32
    int64_t sequence = 512;             ///< T
    int64_t vocab = 32000;
    int64_t checked_at_start = 1'000'000'000;  ///< tokens; the rest are checked as they are read
};

/// shuffled: epoch e is a permutation that depends on the seed and e. sequential: the files' order, for
/// evaluation.
enum class SampleOrder { shuffled, sequential };

class DataLoader {
  public:
    /// Opens and checks the files: headers, lengths, at least one window, and the vocabulary of the first
    /// tokens. Throws Exit::data.
    DataLoader(const DataSettings& settings, SampleOrder order, uint64_t seed = 0);

    int64_t windows() const { return windows_; }  ///< of an epoch
    int64_t sequence() const { return sequence_; }
    int64_t tokens() const;  ///< of all files
    const std::vector<TokenFile>& files() const { return files_; }
    /// Files too short for one window; they are not used.
    std::vector<std::string> unused_files() const;

    /// inputs and targets (count, T): samples first_sample .. first_sample+count-1, targets one token later.
    void fill(int64_t first_sample, int64_t count, int32_t* inputs, int32_t* targets) const;

    struct Location {
        int64_t epoch = 0;
        int64_t file = 0;    ///< index into files()
        int64_t offset = 0;  ///< of the window's first token in the file
    };
    Location location(int64_t sample) const;

  private:
    std::vector<TokenFile> files_;
    std::vector<int64_t> ends_;  ///< (files) windows up to and including the file's
    int64_t sequence_, windows_ = 0;
    SampleOrder order_;
    uint64_t seed_;

    void check_vocabulary(int64_t tokens) const;
};

}  // namespace q2
