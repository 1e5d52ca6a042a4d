// A token file in each format, every token read or refused.
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "train/token_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace q2;
    static fuzz::InputFile input;
    const std::string& path = input.hold(data, size);
    for (const TokenFormat format : {TokenFormat::automatic, TokenFormat::u16, TokenFormat::u32})
        for (const int64_t vocab : {256, 65536, 2147483647})
            fuzz::expect_value_or_error(path, [&] {
                const TokenFile file(path, format, vocab);
                require(file.tokens() >= 0 && uint64_t(file.tokens()) <= size / 2, "tokens from nowhere");
                std::vector<int32_t> tokens(size_t(file.tokens()));
                file.read(0, file.tokens(), tokens.data());
                for (const int32_t token : tokens) require(token >= 0 && token < vocab, "token ", token);
            });
    return 0;
}
