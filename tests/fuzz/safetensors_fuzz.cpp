// A safetensors file: header, entries, every byte of every tensor.
#include "base/checksum.h"
#include "base/safetensors.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace q2;
    static fuzz::InputFile input;
    const std::string& path = input.hold(data, size);
    fuzz::expect_value_or_error(path, [&] {
        const SafetensorsFile file(path);
        size_t bytes = 0;
        Checksum all;
        for (const auto& [name, entry] : file.tensors()) {
            bytes += entry.bytes;
            all.update(entry.data, entry.bytes);
            require(file.at(name).bytes == entry.bytes && all.value() + 1 > 0, "an entry changes");
        }
        require(bytes <= size, "tensors of ", bytes, " bytes in a file of ", size);
    });
    return 0;
}
