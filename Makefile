# Short commands; `make` alone lists them. They work on a fresh Debian 12 or 13 or Ubuntu 24.04: dev/setup.sh installs
# what is missing. What CMake does is in CMakeLists.txt and CMakePresets.json.

FUZZ_SECONDS ?= $(if $(CI),60,5)

help:
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' Makefile

setup: ## install what is missing: packages by apt, newer shader tools in .tools/
	@dev/setup.sh

build: setup ## compile everything into build/
	@$(call cmake_build,release,build)

train: text build ## train a small GPT-2 on a generated corpus, 5 minutes on 2 cores; TEXT=file.txt: on your text; ARGS=...
	@dev/train.sh $(ARGS)

text:
	@dev/train.sh check

test: newer-mesa browser build sanitize fuzz ## run all tests: readers fuzzed, CPU and services under sanitizers, all under Vulkan's validation
	@ctest --preset release

fuzz: setup ## feed broken files to every reader, under sanitizers, for FUZZ_SECONDS each: 5, in CI 60
	@if dev/setup.sh fuzz; then $(call cmake_build,fuzz,build-fuzz) && fuzz/run.sh build-fuzz $(FUZZ_SECONDS); \
	else [ -z "$(CI)" ] && echo "make fuzz: left out, for lack of clang"; fi

# a software device with matrix cores; without it, and without CI=1, their tests say that they are left out
newer-mesa: setup
	@dev/setup.sh newer-mesa || { [ -z "$(CI)" ] && echo "make test: goes on without the tests of matrix cores"; }

# the report's page is looked at in a browser; elsewhere than in CI only if there is one
browser: setup
	@[ -z "$(CI)" ] || dev/setup.sh chromium

bench: build ## run every layer's benchmark, results in build/bench/*.json; ARGS=--benchmark_filter=...
	@dev/bench.sh $(ARGS)

report: build ## measure the device in 10 minutes: runs/report/report.html; QUICK=1: in 1; ARGS=--device ...
	@build/report $(if $(QUICK),--quick) $(ARGS)

sanitize: setup ## CPU and service tests with address and undefined-behaviour sanitizers, in build-sanitize/
	@$(call cmake_build,sanitize,build-sanitize)
	@ctest --preset sanitize

debug: setup ## compile without optimization into build-debug/
	@$(call cmake_build,debug,build-debug)

format: ## lay out the C++ files by .clang-format
	@command -v clang-format >/dev/null || { echo "make format: install the package clang-format" >&2; exit 1; }
	@git ls-files '*.cpp' '*.h' ':!shaders' | xargs -r clang-format -i

clean: ## remove the build folders (.tools/, data/ and runs/ stay)
	rm -rf build build-debug build-sanitize build-fuzz

# cmake_build PRESET,FOLDER: configures where that was not done since the presets changed, then builds
cmake_build = { [ $(2)/build.ninja -nt CMakePresets.json ] || cmake --preset $(1); } && cmake --build --preset $(1)

.PHONY: help text setup newer-mesa browser build train test fuzz bench report sanitize debug format clean
