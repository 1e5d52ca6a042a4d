# The front door; `make help` lists the targets. CMake does the building, this file the remembering.

CUDA ?= AUTO
CUDA_ARCH ?=
JOBS ?= $(shell nproc)
TESTS ?=
BENCH_RECIPES ?= bf16 quartet2
NIGHTLY_ARCHS ?= 90a 100a 103a 120a

MAKEFLAGS += --no-print-directory
SHELL := /bin/bash
# A Toolkit in its usual place is found without being on the path.
export PATH := $(PATH):/usr/local/cuda/bin
QUARTET2 := build/quartet2
CMAKE_OPTIONS := -DCMAKE_BUILD_TYPE=Release $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
CUDA_OPTIONS = -DQUARTET2_CUDA=$(CUDA) $(if $(CUDA_ARCH),-DCMAKE_CUDA_ARCHITECTURES=$(CUDA_ARCH))

.DEFAULT_GOAL := help
.PHONY: help setup build run demo-data test test-gpu bench format check sanitize fuzz nightly clean

help:  ## this list
	@echo "make TARGET [CUDA=AUTO|ON|OFF] [CUDA_ARCH=90a] [JOBS=n]"
	@sed -n 's/^\([a-z-]*\):.*## /\1 - /p' $(MAKEFILE_LIST) | \
	    while IFS= read -r line; do printf '  %-10s %s\n' "$${line%% - *}" "$${line#* - }"; done

setup:
	@scripts/setup.sh

build: setup  ## the program and its tests, in build/
	cmake -S . -B build $(CMAKE_OPTIONS) $(CUDA_OPTIONS)
	cmake --build build -j $(JOBS)

demo-data: setup
	cmake -S . -B build $(CMAKE_OPTIONS) $(CUDA_OPTIONS)
	cmake --build build -j $(JOBS) --target quartet2
	mkdir -p build/demo
	$(QUARTET2) tokenize data/demo.txt --out build/demo/train.bin --val build/demo/val.bin --val-fraction 0.1

run: demo-data  ## install what is missing, build, train the demo into runs/demo, evaluate, print a sample
	@if [ -e runs/demo ]; then rm -rf runs/demo-previous && mv runs/demo runs/demo-previous && \
	    echo "The former runs/demo is now runs/demo-previous."; fi
	$(QUARTET2) train configs/demo.json --out runs/demo
	$(QUARTET2) eval runs/demo
	$(QUARTET2) generate runs/demo --prompt "It is a truth universally acknowledged, that "
	@echo
	@echo "Next, the same model in bfloat16, and how far apart the two are:"
	@echo "  $(QUARTET2) train configs/demo.json --out runs/demo-bf16 --set precision.recipe=bf16"
	@echo "  $(QUARTET2) compare runs/demo-bf16 runs/demo --svg runs/demo.svg"

test: build  ## build and run all tests, or some: make test TESTS=regex
	ctest --test-dir build -j $(JOBS) --output-on-failure --no-tests=error $(if $(TESTS),-R '$(TESTS)')

test-gpu: setup  ## build with CUDA and hold the GPU's operations against the CPU's (needs a GPU)
	bash scripts/gpu_check.sh

bench: demo-data  ## training speed on the demo's model, recipe by recipe: make bench BENCH_RECIPES="bf16 nvidia"
	rm -rf build/bench
	for recipe in $(BENCH_RECIPES); do \
	    $(QUARTET2) train configs/demo.json --out build/bench/$$recipe \
	        --set precision.recipe=$$recipe --set train.steps=50 --set train.eval_every=0 || exit; done
	$(QUARTET2) compare $(addprefix build/bench/,$(BENCH_RECIPES))

format:  ## clang-format every source in place
	scripts/format.sh

check: setup  ## format (with clang-format 14, else skipped), layers and documents' links, nothing is changed
	scripts/format.sh --check
	python3 scripts/check_layers.py
	python3 scripts/check_links.py

sanitize: setup  ## the CPU tests under the address and undefined-behaviour sanitizers, in build/sanitize
	cmake -S . -B build/sanitize $(CMAKE_OPTIONS) -DQUARTET2_CUDA=OFF -DQUARTET2_SANITIZE=address,undefined
	cmake --build build/sanitize -j $(JOBS)
	ctest --test-dir build/sanitize -j $(JOBS) --output-on-failure --no-tests=error $(if $(TESTS),-R '$(TESTS)')

fuzz: setup  ## each parser under its fuzz target: make fuzz SECONDS=600 (with clang++ where it is, by coverage)
	cmake -S . -B build/fuzz $(CMAKE_OPTIONS) -DQUARTET2_FUZZ=ON -DCMAKE_BUILD_TYPE=None \
	    -DCMAKE_CXX_COMPILER=$(if $(shell command -v clang++),clang++,g++)
	cmake --build build/fuzz -j $(JOBS)
	cd build/fuzz && for parser in config token_file safetensors manifest; do mkdir -p found/$$parser && \
	    tests/fuzz/$${parser}_fuzz -max_total_time=$(or $(SECONDS),60) found/$$parser \
	        ../../tests/fuzz/corpus/$$parser || exit; done

nightly: setup  ## compile the CUDA sources for every architecture of NIGHTLY_ARCHS
	for arch in $(NIGHTLY_ARCHS); do \
	    cmake -S . -B build/cuda-$$arch $(CMAKE_OPTIONS) -DQUARTET2_CUDA=ON \
	        -DCMAKE_CUDA_ARCHITECTURES=$$arch && \
	    cmake --build build/cuda-$$arch -j $(JOBS) --target quartet2_cuda || exit; done

clean:  ## remove build/ (runs/ stays)
	rm -rf build
