// A folder of its own for a test, removed with everything in it; and checks on the text of errors.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/check.h"

namespace q2::test {

class TempFolder {
  public:
    TempFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "quartet2-XXXXXX").string();
        require(::mkdtemp(name.data()) != nullptr, "no temporary folder ", name);
        path_ = name;
    }
    ~TempFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;

    std::string operator/(const std::string& name) const { return path_ + "/" + name; }
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

inline void write_bytes(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string read_bytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

/// Runs f; it must throw an Error of this code whose text contains every part.
template <class F>
void expect_error(Exit code, std::initializer_list<std::string> parts, F f) {
    try {
        f();
        ADD_FAILURE() << "no error; expected one with \"" << *parts.begin() << "\"";
    } catch (const Error& error) {
        EXPECT_EQ(int(error.code), int(code)) << error.what();
        for (const std::string& part : parts)
            EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
                << "\"" << part << "\" is not in: " << error.what();
    }
}

}  // namespace q2::test
