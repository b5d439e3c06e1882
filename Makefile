# Short commands; `make` alone lists them. They work on a fresh Debian 12 or 13 or Ubuntu 24.04: dev/setup.sh
# installs what is missing. The build itself is in CMakeLists.txt and CMakePresets.json.

FUZZ_SECONDS ?= $(if $(CI),15,5)
PREFIX ?= /usr/local

help:
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' Makefile

setup: ## install what is missing: packages with apt, newer shader tools in .tools/
	@dev/setup.sh

train: text ## train a small GPT-2 on a generated corpus; TEXT=file or folder: on yours; ARGS=options
	@dev/setup.sh train
	@$(call build_programs,$(programs))
	@build/train_gpt2 --text "$${TEXT:-stories}" $(ARGS)

# before a build of minutes
text:
	@case "$$TEXT" in "" | "~"*) ;; *) [ -r "$$TEXT" ] || \
	{ echo "make train: TEXT: $$TEXT is not a readable file or folder" >&2; exit 1; } ;; esac

build: setup ## build everything in build/
	@$(call cmake_build,$(preset),build)

install: ## install the programs as vulkan-gpt2-train, ... in PREFIX/bin; PREFIX=/usr/local
	@dev/setup.sh train
	@$(call build_programs,$(programs))
	@cmake --install build --prefix $(PREFIX)

package: ## build packages of the programs, build/vulkan-gpt2*.deb, .tar.gz; build-windows/*.zip
	@dev/setup.sh
	@$(call build_programs,$(programs))
	@cd build && cpack
	@if [ -n "$(CI)" ] || command -v x86_64-w64-mingw32-g++-posix >/dev/null; then dev/setup.sh windows && \
	$(call cmake_build,windows,build-windows,$(programs)) && cd build-windows && cpack; \
	else echo "make package: skips the .zip for Windows: dev/setup.sh windows installs its compiler"; fi

test: setup ## build and run the tests: some minutes
	@$(call cmake_build,$(preset),build,tests)
	@ctest --preset release

# Everything: the tests, those that need minutes or another Mesa, compiler, browser or system, sanitizers and
# fuzzers.
check: linux windows ## all tests

linux: test newer-mesa swiftshader macos browser vendor-compilers build sanitize fuzz ## all tests of Linux
	@ctest --preset check

fuzz: setup ## feed malformed files to every reader, under sanitizers, FUZZ_SECONDS=5 each
	@if dev/setup.sh fuzz; then $(call cmake_build,fuzz,build-fuzz) && fuzz/run.sh build-fuzz $(FUZZ_SECONDS); \
	else [ -z "$(CI)" ] && echo "make fuzz: skipped, since clang is missing"; fi

# Skipped where its packages cannot be installed, unless CI=1. The kernels are those that the tests of this
# system use.
windows: setup ## build programs and tests for Windows in build-windows/, and run the tests under Wine
	@if dev/setup.sh windows; then $(call cmake_build,$(preset),build,tests) && \
	$(call cmake_build,windows,build-windows,tests test_gpt2) && dev/windows_tests.sh; \
	else [ -z "$(CI)" ] && echo "make windows: skipped, since mingw-w64, Wine or their libraries are missing"; fi

# A software device with cooperative matrices. Without it, their tests are skipped, unless CI=1.
newer-mesa: setup
	@dev/setup.sh newer-mesa || { [ -z "$(CI)" ] && echo "make check: skips the tests of cooperative matrices"; }

# A second implementation of Vulkan. Without it, its tests are skipped, unless CI=1.
swiftshader: setup
	@dev/setup.sh swiftshader || { [ -z "$(CI)" ] && echo "make check: skips the tests on SwiftShader"; }

# A compiler for macOS, from Python's index. Without it, its test is skipped.
macos: setup
	@dev/setup.sh macos || echo "make check: does not compile for macOS"

# The compilers of AMD and Intel, for compile_kernels_test; installed only in CI, where a failure is no error,
# since they come from a newer Debian's archive.
vendor-compilers: setup
	@[ -z "$(CI)" ] || dev/setup.sh vendor-compilers || echo "make check: skips the compilers of AMD and Intel"

# A browser for the test of the report's page; installed only in CI.
browser: setup
	@[ -z "$(CI)" ] || dev/setup.sh chromium

torture: build ## inject every fault into small runs, where tests take a sample; about half an hour
	@dev/torture.sh build

bench: build ## time every version of every kernel; ARGS="--filter REGEX --json FILE"
	@build/bench $(ARGS)

report: build ## measure the device in 10 minutes: runs/report/report.html; QUICK=1: 1 minute; ARGS=options
	@build/report $(if $(QUICK),--quick) $(ARGS)

sanitize: setup ## run the CPU tests with address and undefined-behaviour sanitizers, in build-sanitize/
	@$(call cmake_build,sanitize,build-sanitize)
	@ctest --preset sanitize

debug: setup ## build without optimization in build-debug/
	@$(call cmake_build,debug,build-debug)

format: ## format the C++ files with clang-format
	@command -v clang-format >/dev/null || { echo "make format: install the package clang-format" >&2; exit 1; }
	@git ls-files '*.cpp' '*.h' ':!shaders' | xargs -r clang-format -i

clean: ## remove the build folders; .tools/, data/ and runs/ stay
	rm -rf build build-windows build-debug build-sanitize build-fuzz

# configure PRESET,FOLDER: also notes the preset in the folder
configure = cmake --preset $(1) && echo $(1) >$(2)/preset

preset = $(if $(CI),ci,release)

# cmake_build PRESET,FOLDER[,TARGET]: configures if the presets changed or the folder was configured by
# another one, then builds
cmake_build = { { [ $(2)/build.ninja -nt CMakePresets.json ] && grep -qsx $(1) $(2)/preset; } || \
	{ $(call configure,$(1),$(2)); }; } && cmake --build --preset $(1) $(if $(3),--target $(3))

# what is installed
programs = train_gpt2 generate eval make_corpus prepare_data

# build_programs TARGETS: builds only these, in build/ as it is configured, else without tests and benchmarks
build_programs = { [ build/build.ninja -nt CMakePresets.json ] || \
	{ $(call configure,programs,build); }; } && cmake --build build --target $(1)

.PHONY: help setup train text build install package test check linux fuzz windows newer-mesa swiftshader \
	macos browser vendor-compilers torture bench report sanitize debug format clean
