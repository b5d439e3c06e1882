#!/bin/bash
# compile_for_macos.sh SOURCE BUILD: compiles the library, the programs and the device report for macOS on
# 64-bit Arm, without warnings, with the compiler that `dev/setup.sh macos` unpacks and the headers of the
# libraries that are installed here. Nothing is linked. Exits with 77, for "skipped", without that compiler.
set -euo pipefail
source=$1 build=$2
compiler=$source/.tools/bin/macos-c++
[ -x "$compiler" ] || exit 77
include=$(mktemp -d)  # outside of the source, which an installed library may not name
trap 'rm -r "$include"' EXIT
for name in vulkan vk_video nlohmann toml++ google editline pcre2.h xxhash.h xxh3.h zlib.h zconf.h zstd.h \
    zstd_errors.h; do
    for path in /usr/include/$name /usr/include/*-linux-gnu/$name; do
        [ ! -e "$path" ] || ln -sfn "$path" "$include/$name"
    done
done
options=(-DCMAKE_SYSTEM_NAME=Darwin -DCMAKE_SYSTEM_PROCESSOR=arm64 -DCMAKE_CXX_COMPILER="$compiler"
    -DCMAKE_OSX_SYSROOT= -DCMAKE_BUILD_TYPE=Debug -DWARNINGS_AS_ERRORS=ON -DCCACHE=
    -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON -DWITH_SHADERS=OFF -DWITH_TESTS=OFF -DBENCHMARK_INCLUDE=/none)
for name in VULKAN TOML JSON XXHASH PCRE2 ZLIB ZSTD EDIT; do
    options+=("-D${name}_INCLUDE=$include")
done
for name in PCRE2_LIBRARY ZLIB_LIBRARY ZSTD_LIBRARY EDIT_SHARED BENCHMARK_LIBRARY; do
    options+=("-D$name=/none")
done
cmake -S "$source" -B "$build" -G Ninja "${options[@]}"
mapfile -t objects < <(ninja -C "$build" -t targets all | sed -n 's/^\(.*\.o\): .*/\1/p')
[ ${#objects[@]} -gt 150 ]
ninja -C "$build" -k 0 "${objects[@]}"
