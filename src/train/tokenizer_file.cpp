#include "train/tokenizer_file.h"

#include "base/check.h"
#include "base/files.h"
#include "base/strict_json.h"

namespace q2 {
namespace {

using Json = nlohmann::json;

// A vocabulary of 256000 with its merges is about 35 MB and 2.5 million values.
constexpr size_t kMaxBytes = size_t(256) << 20;
constexpr JsonLimits kLimits = {.depth = 32, .values = 20'000'000};

/// A tokenizer.json on its way through the checks.
struct Tokenizer {
    const std::string& path;
    int64_t vocab;

    const Json& member(const Json& object, const char* key) const {
        const auto found = object.find(key);
        check(found != object.end(), Exit::data, path, ": no \"", key,
              "\"; data.tokenizer needs a Hugging Face tokenizer.json");
        return *found;
    }
    void check_id(const Json& id, const std::string& token) const {
        check(id.is_number_integer(), Exit::data, path, ": token \"", clipped(token), "\" has the id ",
              shown(id), ", not an integer");
        const bool fits = id.is_number_unsigned() && id.get<uint64_t>() < uint64_t(vocab);
        check(fits, Exit::data, path, ": token \"", clipped(token), "\" has the id ", shown(id),
              ", not 0 to ", vocab - 1, "; raise model.vocab or take the data's own tokenizer");
    }
    void check_vocabulary(const Json& tokens) const;
    void check_merges(const Json& merges, const Json& tokens) const;
    void check_added(const Json& added) const;
};

/// {"token": id}, or Unigram's [["token", score]], where the place is the id.
void Tokenizer::check_vocabulary(const Json& tokens) const {
    check(!tokens.empty() && (tokens.is_object() || tokens.is_array()), Exit::data, path,
          ": \"vocab\" = ", shown(tokens), " is not a table of tokens");
    if (tokens.is_object())
        for (const auto& [token, id] : tokens.items()) check_id(id, token);
    else
        check(tokens.size() <= size_t(vocab), Exit::data, path, ": \"vocab\" holds ", tokens.size(),
              " tokens, more than model.vocab = ", vocab, "; raise model.vocab");
}

/// Each "left right" or ["left", "right"], of tokens that the vocabulary has.
void Tokenizer::check_merges(const Json& merges, const Json& tokens) const {
    check(merges.is_array(), Exit::data, path, ": \"merges\" = ", shown(merges), " is not a list");
    for (size_t i = 0; i < merges.size(); ++i) {
        const Json& merge = merges[i];
        const std::string text = merge.is_string() ? merge.get<std::string>() : "";
        const size_t space = text.find(' ');
        const bool pair =
            merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
        check(pair || space != text.npos, Exit::data, path, ": merge ", i, ", ", shown(merge),
              ", is not a pair of tokens; the file is damaged");
        for (const std::string& part : {pair ? merge[0].get<std::string>() : text.substr(0, space),
                                        pair ? merge[1].get<std::string>() : text.substr(space + 1)})
            check(tokens.contains(part), Exit::data, path, ": merge ", i, ", ", shown(merge), ": \"",
                  clipped(part), "\" is not in the vocabulary; the file is damaged");
    }
}

void Tokenizer::check_added(const Json& added) const {
    check(added.is_array(), Exit::data, path, ": \"added_tokens\" = ", shown(added), " is not a list");
    for (const Json& token : added) {
        const bool named = token.is_object() && token.contains("id") && token.contains("content") &&
                           token["content"].is_string();
        check(named, Exit::data, path, ": added token ", shown(token), " needs \"id\" and \"content\"");
        check_id(token["id"], token["content"].get<std::string>());
    }
}

}  // namespace

void check_tokenizer_file(const std::string& path, int64_t vocab) {
    const Json json = parse_json(read_file(path, kMaxBytes), path, kLimits);
    const Tokenizer file{path, vocab};
    const Json& model = file.member(json, "model");
    const Json& tokens = file.member(model, "vocab");
    file.check_vocabulary(tokens);
    if (model.contains("merges")) file.check_merges(model["merges"], tokens);
    if (json.contains("added_tokens")) file.check_added(json["added_tokens"]);
}

}  // namespace q2
