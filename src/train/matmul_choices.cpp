#include "train/matmul_choices.h"

#include <charconv>

#include "train/manifest.h"

namespace q2 {
namespace {

constexpr size_t kMaxChoices = 1 << 16;

uint64_t word_of(const nlohmann::json& json) {
    const std::string text = json.is_string() ? json.get<std::string>() : "";
    uint64_t word = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), word, 16);
    require(text.size() == 16 && error == std::errc() && end == text.data() + text.size(), "not a word");
    return word;
}

MatmulChoice choice_of(const nlohmann::json& json) {
    MatmulChoice choice;
    const nlohmann::json &product = json.at("product"), &algorithm = json.at("algorithm");
    require(product.size() == choice.product.size() && algorithm.size() == choice.algorithm.size(),
            "not a choice");
    for (size_t i = 0; i < product.size(); ++i) {
        require(product.at(i).is_number_integer(), "not a number");
        choice.product[i] = product.at(i).get<int64_t>();
    }
    for (size_t i = 0; i < algorithm.size(); ++i) choice.algorithm[i] = word_of(algorithm.at(i));
    return choice;
}

}  // namespace

nlohmann::json choices_to_json(const std::vector<MatmulChoice>& choices) {
    nlohmann::json json = nlohmann::json::array();
    for (const MatmulChoice& choice : choices) {
        nlohmann::json words = nlohmann::json::array();
        for (const uint64_t word : choice.algorithm) words.push_back(checksum_text(word));
        json.push_back({{"product", choice.product}, {"algorithm", words}});
    }
    return json;
}

std::vector<MatmulChoice> choices_from_json(const nlohmann::json& json, const std::string& path) {
    try {
        require(json.is_array() && json.size() <= kMaxChoices, "not an array");
        std::vector<MatmulChoice> choices;
        for (const nlohmann::json& choice : json) choices.push_back(choice_of(choice));
        return choices;
    } catch (const std::exception&) {
        fail(Exit::data, path,
             ": extra.matmul is not a list of products' algorithms; take an earlier checkpoint");
    }
}

}  // namespace q2
