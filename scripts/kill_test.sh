#!/usr/bin/env bash
# Kills short training runs at random moments, half of them in a save, and holds what a resume gives against the
# undisturbed run's bits (tests/faults/kill_test.cpp).
#
#   scripts/kill_test.sh --runs 100                  on the CPU
#   scripts/kill_test.sh --runs 10 --backend cuda    on a GPU; a build with CUDA is needed
#   --seed N     repeats the moments of the run that printed it
#   --build DIR  of the build [build]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build
while [ $# -gt 0 ]; do
    if [ $# -lt 2 ]; then
        echo "kill_test: $1 needs a value" >&2
        exit 2
    fi
    case "$1" in
        --runs) export QUARTET2_KILL_RUNS=$2 ;;
        --backend) export QUARTET2_KILL_BACKEND=$2 ;;
        --seed) export QUARTET2_TEST_SEED=$2 ;;
        --build) build=$2 ;;
        *)
            echo "usage: scripts/kill_test.sh [--runs N] [--backend cpu|cuda] [--seed N] [--build DIR]" >&2
            exit 2
            ;;
    esac
    shift 2
done

program=$build/tests/faults_kill_test
if [ ! -x "$program" ]; then
    echo "kill_test: $program is not built: cmake --build $build --target faults_kill_test" >&2
    exit 2
fi
exec "$program"
