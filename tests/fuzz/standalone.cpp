// Runs a fuzz target without libFuzzer: PROGRAM [-max_total_time=N] [-seed=N] PATH..., where a PATH is an
// input or a folder of them. Without a time each input runs once; with one the inputs are also mutated for N
// seconds. The input at hand is kept in crash-<pid> until it has passed, so a crash leaves its cause behind.
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void run(const std::string& input) {
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

class Mutator {
  public:
    Mutator(std::vector<std::string> inputs, uint64_t seed) : inputs_(std::move(inputs)), random_(seed) {}

    std::string next() {
        std::string text = pick();
        for (size_t edits = 1 + below(6); edits > 0; --edits) edit(text);
        return text;
    }

  private:
    size_t below(size_t n) { return n == 0 ? 0 : std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
    const std::string& pick() { return inputs_[below(inputs_.size())]; }

    void edit(std::string& text) {
        static const char* const tokens[] = {"{",
                                             "}",
                                             "[",
                                             "]",
                                             ",",
                                             ":",
                                             "\"",
                                             "null",
                                             "-1",
                                             "0",
                                             "1e308",
                                             "18446744073709551615",
                                             "9223372036854775808",
                                             "\\u0000",
                                             "\xff"};
        const size_t at = below(text.size() + 1);
        switch (below(6)) {
            case 0:
                return void(at < text.size() && (text[at] = char(random_())));
            case 1:
                return void(at < text.size() && (text[at] = char(text[at] ^ (1 << below(8)))));
            case 2:
                return void(text.erase(at, 1 + below(16)));
            case 3:
                return void(text.insert(at, tokens[below(std::size(tokens))]));
            case 4:
                return void(text.insert(at, text.substr(below(text.size()), below(64))));
            default: {
                const std::string& other = pick();
                text = text.substr(0, at) + other.substr(below(other.size()));
            }
        }
        if (text.size() > (1 << 16)) text.resize(1 << 16);
    }

    std::vector<std::string> inputs_;
    std::mt19937_64 random_;
};

}  // namespace

int main(int argc, char** argv) {
    std::vector<std::string> inputs;
    double seconds = 0;
    uint64_t seed = std::random_device()();
    for (const std::string& argument : std::vector<std::string>(argv + 1, argv + argc)) {
        if (argument.starts_with("-max_total_time="))
            seconds = std::stod(argument.substr(16));
        else if (argument.starts_with("-seed="))
            seed = std::stoull(argument.substr(6));
        else if (fs::is_directory(argument))
            for (const auto& entry : fs::directory_iterator(argument)) inputs.push_back(read(entry.path()));
        else if (!argument.starts_with("-"))
            inputs.push_back(read(argument));
    }
    if (inputs.empty()) inputs.push_back("");
    std::printf("%zu inputs, seed %llu\n", inputs.size(), static_cast<unsigned long long>(seed));
    std::fflush(stdout);
    for (const std::string& input : inputs) run(input);
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    const std::string crash = "crash-" + std::to_string(::getpid());
    Mutator mutator(inputs, seed);
    long long count = 0;
    for (; std::chrono::steady_clock::now() < end; ++count) {
        const std::string input = mutator.next();
        std::ofstream(crash, std::ios::binary) << input;
        run(input);
    }
    fs::remove(crash);
    std::printf("Done: %zu inputs and %lld mutants without a finding\n", inputs.size(), count);
}
