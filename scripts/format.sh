#!/usr/bin/env bash
# Formats every C++ and CUDA source in place, or with --check says which would change. Versions of clang-format
# disagree about the same style, so only the one the sources were written with is used.
set -euo pipefail
cd "$(dirname "$0")/.."
version=14

formatter=
for candidate in "clang-format-$version" clang-format; do
    if "$candidate" --version 2>/dev/null | grep -q "version $version\."; then
        formatter=$candidate
        break
    fi
done
if [ -z "$formatter" ]; then
    echo "format: skipped, clang-format $version is not here (Debian: clang-format-$version)"
    exit 0
fi

mapfile -d '' sources < <(find src kernels tests \
    \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0)
case "${1:-}" in
    --check) "$formatter" --dry-run --Werror "${sources[@]}" && echo "format: ${#sources[@]} files are clean" ;;
    "") "$formatter" -i "${sources[@]}" ;;
    *)
        echo "usage: scripts/format.sh [--check]" >&2
        exit 2
        ;;
esac
