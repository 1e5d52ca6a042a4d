// The golden files: every one of a kind in the folder QUARTET2_GOLDEN names, by default tests/golden.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/safetensors.h"

namespace q2::test {

inline std::string golden_folder() {
    const char* folder = std::getenv("QUARTET2_GOLDEN");
    return folder && *folder ? folder : QUARTET2_SOURCE_DIR "/tests/golden";
}

/// Paths whose file name begins with `prefix`, sorted. A folder without any golden file fails the test.
inline std::vector<std::string> golden_files(const std::string& prefix) {
    std::vector<std::string> paths;
    bool any = false;
    for (const auto& entry : std::filesystem::directory_iterator(golden_folder())) {
        const std::string name = entry.path().filename().string();
        if (!name.ends_with(".safetensors")) continue;
        any = true;
        if (name.starts_with(prefix)) paths.push_back(entry.path().string());
    }
    std::sort(paths.begin(), paths.end());
    EXPECT_TRUE(any) << "no golden file in " << golden_folder();
    return paths;
}

/// A folder may hold files of the other kind alone.
#define SKIP_WITHOUT_GOLDEN(prefix)                                             \
    if (q2::test::golden_files(prefix).empty() && !testing::Test::HasFailure()) \
    GTEST_SKIP() << "no " prefix "*.safetensors in " << q2::test::golden_folder()

template <class T>
std::vector<T> golden_values(const SafetensorsFile& file, const std::string& name) {
    const SafetensorsEntry& entry = file.at(name);
    std::vector<T> values(entry.bytes / sizeof(T));
    std::memcpy(values.data(), entry.data, entry.bytes);
    return values;
}

}  // namespace q2::test
