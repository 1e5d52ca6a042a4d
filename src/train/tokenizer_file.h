// The tokenizer.json that data.tokenizer names. The program only passes ids on, to scripts/tokenize.py; here
// a run makes sure at its start that the file is there, is one, and fits the model.
#pragma once

#include <cstdint>
#include <string>

namespace q2 {

/// Throws Exit::data, naming file and key, unless `path` is a tokenizer.json whose vocabulary, merges and
/// added tokens hold together with ids below `vocab`.
void check_tokenizer_file(const std::string& path, int64_t vocab);

}  // namespace q2
