#include "commands/tokenize.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "base/check.h"
#include "base/files.h"
#include "train/token_file.h"

namespace q2 {
namespace {

constexpr int64_t kChunk = int64_t(1) << 20;

/// The texts as one, addressed by byte.
class Texts {
  public:
    explicit Texts(const std::vector<std::string>& patterns) {
        for (const std::string& pattern : patterns)
            for (const std::string& path : expand_glob(pattern))
                size_ += int64_t(files_.emplace_back(path).size());
    }

    int64_t size() const { return size_; }
    const std::vector<MappedFile>& files() const { return files_; }

    /// f(bytes, count) over pieces of bytes first .. end-1.
    template <class F>
    void for_pieces(int64_t first, int64_t end, F f) const {
        int64_t start = 0;
        for (const MappedFile& file : files_) {
            const int64_t stop = std::min(end - start, int64_t(file.size()));
            for (int64_t at = std::max<int64_t>(first - start, 0); at < stop; at += kChunk)
                f(file.data() + at, std::min(kChunk, stop - at));
            start += int64_t(file.size());
        }
    }

  private:
    std::vector<MappedFile> files_;
    int64_t size_ = 0;
};

void write_tokens(AtomicFile& out, const Texts& texts, int64_t first, int64_t end) {
    write_token_header(out, 2, end - first);
    std::vector<uint16_t> tokens;
    texts.for_pieces(first, end, [&](const uint8_t* bytes, int64_t count) {
        tokens.assign(bytes, bytes + count);
        out.write(tokens.data(), tokens.size() * sizeof tokens[0]);
    });
}

void check_paths(const TokenizeOptions& options, const Texts& texts) {
    check(options.out != options.val, Exit::usage, "--out and --val are the same file, ", options.out);
    for (const std::string& path : {options.out, options.val})
        for (const MappedFile& file : texts.files()) {
            std::error_code missing;
            check(!std::filesystem::equivalent(path, file.path(), missing), Exit::usage, path,
                  ": is an input too; writing it would destroy the text");
        }
}

}  // namespace

int tokenize(const TokenizeOptions& options) {
    check(options.val_fraction > 0 && options.val_fraction < 1, Exit::usage, "--val-fraction ",
          options.val_fraction, " is not between 0 and 1");
    const Texts texts(options.inputs);
    check_paths(options, texts);
    const int64_t val_size = options.val.empty() ? 0 : int64_t(double(texts.size()) * options.val_fraction);
    const int64_t train_size = texts.size() - val_size;
    check(train_size > 0 && (options.val.empty() || val_size > 0), Exit::data, options.inputs.at(0), ": ",
          texts.size(), " bytes of text are too few");

    AtomicFile out(options.out);
    std::optional<AtomicFile> val;
    if (!options.val.empty()) val.emplace(options.val);
    write_tokens(out, texts, 0, train_size);
    if (val) write_tokens(*val, texts, train_size, texts.size());
    out.commit();
    std::cout << options.out << ": " << train_size << " tokens\n";
    if (val) {
        val->commit();
        std::cout << options.val << ": " << val_size << " tokens\n";
    }
    return int(Exit::ok);
}

void add_tokenize(CLI::App& app, std::function<int()>& run) {
    const auto options = std::make_shared<TokenizeOptions>();
    CLI::App* command =
        app.add_subcommand("tokenize", "Turn text into a token file, one token a byte (vocabulary 256)");
    command->add_option("INPUT", options->inputs, "Text files or globs, joined in this order")->required();
    command->add_option("--out", options->out, "Token file to write")->required();
    CLI::Option* val = command->add_option("--val", options->val,
                                           "Token file for the last part of the text, for validation");
    command->add_option("--val-fraction", options->val_fraction, "That part's share of the bytes")
        ->needs(val)
        ->capture_default_str();
    command->callback([options, &run] { run = [options] { return tokenize(*options); }; });
}

}  // namespace q2
