#!/usr/bin/env bash
# Installs what the build needs and this machine lacks. Says nothing and calls no package manager when
# everything is there.
set -euo pipefail

# __has_include, so that a probe costs a preprocessor run over nothing.
has_header() {
    printf '#if !__has_include(<%s>)\n#error missing\n#endif\n' "$1" |
        "${CXX:-g++}" -std=c++20 -E -x c++ - >/dev/null 2>&1
}

# Debian 12's and Ubuntu 24.04's name of the package, then how to tell that it is there.
missing=()
command -v cmake >/dev/null || missing+=(cmake)
command -v make >/dev/null || missing+=(make)
command -v python3 >/dev/null || missing+=(python3)
has_header span || missing+=(g++)
has_header cblas.h || has_header openblas/cblas.h || missing+=(libopenblas-dev)
has_header nlohmann/json.hpp || missing+=(nlohmann-json3-dev)
has_header spdlog/spdlog.h || missing+=(libspdlog-dev)
has_header CLI/CLI.hpp || missing+=(libcli11-dev)
has_header gtest/gtest.h || missing+=(libgtest-dev)
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
    cat >&2 <<EOF
setup: this machine lacks (by their Debian names): ${missing[*]}
setup: it has no apt-get, so install them by its own means: CMake 3.22 or later, a C++20 compiler (g++ 12 or
setup: later), GNU make, Python 3, and the development files of OpenBLAS, nlohmann/json 3.10 or later, spdlog,
setup: CLI11 and GoogleTest.
EOF
    exit 1
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || {
        echo "setup: not root and no sudo; as root: apt-get install ${missing[*]}" >&2
        exit 1
    }
    as_root=(sudo)
fi
echo "setup: installing ${missing[*]}"
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
