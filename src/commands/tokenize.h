// `quartet2 tokenize`: the bytes of texts as a token file, one token a byte, vocabulary 256.
// scripts/tokenize.py does the same with any tokenizer.json.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace q2 {

struct TokenizeOptions {
    std::vector<std::string> inputs;  ///< paths or globs; their bytes are joined in this order
    std::string out, val;             ///< token files; val: none if empty
    double val_fraction = 0.1;        ///< the last part of the text goes to `val`
};

/// Writes both files or neither. Throws Exit::usage or Exit::data.
int tokenize(const TokenizeOptions& options);

/// Registers the subcommand; when it is chosen, `run` becomes the work to do.
void add_tokenize(CLI::App& app, std::function<int()>& run);

}  // namespace q2
