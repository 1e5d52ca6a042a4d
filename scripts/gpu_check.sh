#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: builds the program and the tests that use the GPU, runs them, and leaves
# BUILD/gpu_report.txt. The exit status is 0 if everything passed.
#
#   scripts/gpu_check.sh              build and test
#   SANITIZE=1 scripts/gpu_check.sh   also the small tests under compute-sanitizer (slow)
#
# BUILD (build/gpu), CUDA_ARCH (the GPU's own), JOBS (all processors) may be set.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
export PATH="$PATH:/usr/local/cuda/bin"
BUILD=${BUILD:-build/gpu}
JOBS=${JOBS:-$(nproc)}

capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d .)
if [ -z "$capability" ]; then
    echo "gpu_check: nvidia-smi shows no GPU; this check needs one" >&2
    exit 6
fi
# From Hopper on, a generation's own instructions need the architecture with an "a".
[ "$capability" -ge 90 ] && own_arch="${capability}a" || own_arch="$capability"
CUDA_ARCH=${CUDA_ARCH:-$own_arch}

mkdir -p "$BUILD"
report=$BUILD/gpu_report.txt
failures=0
say() { echo "$*" | tee -a "$report"; }

# A step's last lines and time go into the report, all of it into a log beside it.
step() {
    local name=$1 start=$SECONDS status
    shift
    "$@" >"$BUILD/$name.log" 2>&1
    status=$?
    say "$([ $status -eq 0 ] && echo ok || echo FAILED) $name ($((SECONDS - start)) s)"
    grep -E '^\[  (PASSED|SKIPPED|FAILED)|^seed |ERROR SUMMARY' "$BUILD/$name.log" | sort | uniq -c | tee -a "$report"
    if [ $status -ne 0 ]; then
        failures=$((failures + 1))
        grep -E -B2 -A8 'Failure|error|Error' "$BUILD/$name.log" | head -40 | tee -a "$report"
    fi
}

: >"$report"
say "$(date -u +%FT%TZ) commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), architecture $CUDA_ARCH"
say "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | head -1)"
say "$(nvcc --version | tail -2 | head -1)"

tests=()
for source in tests/kernels/cuda/*_test.cpp; do
    tests+=("kernels_cuda_$(basename "$source" .cpp)")
done
by_backend=(train_non_finite_test)
for source in tests/golden_*_test.cpp; do
    by_backend+=("$(basename "$source" .cpp)")
done

launcher=()
if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
fi
step configure cmake -S . -B "$BUILD" -DCMAKE_BUILD_TYPE=Release -DQUARTET2_CUDA=ON \
    -DCMAKE_CUDA_ARCHITECTURES="$CUDA_ARCH" "${launcher[@]}"
step build cmake --build "$BUILD" -j "$JOBS" --target quartet2 "${tests[@]}" "${by_backend[@]}"
if [ $failures -gt 0 ]; then
    say "not built: nothing was tested"
    exit 1
fi

for test in "${tests[@]}"; do
    step "$test" "$BUILD/tests/$test"
done
for test in "${by_backend[@]}"; do  # the CPU's cases have run elsewhere
    step "$test" "$BUILD/tests/$test" --gtest_filter='*/cuda*:*cuda*'
done
if [ "${SANITIZE:-0}" = 1 ]; then
    for tool in memcheck racecheck initcheck; do
        for test in "${tests[@]}"; do
            [ "$test" = kernels_cuda_memory_test ] && continue  # it provokes errors on purpose
            step "$tool-$test" compute-sanitizer --tool "$tool" --error-exitcode 1 "$BUILD/tests/$test" \
                --gtest_filter='-*Large*:*Limits*:*Many*'
        done
    done
fi
say "$failures failed; logs in $BUILD"
[ $failures -eq 0 ]
