#!/bin/bash
# Installs what the build, the tests and the plots need, on Debian 12 or later and Ubuntu 24.04 or later.
# Leaves alone what is already installed, so a second run does nothing. Run as:
#   dev/setup.sh             packages with apt (with sudo unless root), a newer glslang in .tools/ if needed
#   dev/setup.sh train       the same without what only tests and benchmarks need
#   dev/setup.sh fuzz        also clang with libFuzzer, for fuzz/
#   dev/setup.sh chromium    also Chromium, in which a test opens the report's page; only on Debian
#   dev/setup.sh newer-mesa  also a newer Mesa in .tools/: .tools/bin/with-newer-mesa PROGRAM ARGS...
#   dev/setup.sh swiftshader also Chromium's software device; only on Debian: .tools/bin/with-swiftshader
#   dev/setup.sh macos       also a compiler for macOS: .tools/bin/macos-c++
#   dev/setup.sh windows     also a cross compiler for Windows, Wine, and libraries in .tools/windows
#   dev/setup.sh vendor-compilers  also the drivers of AMD and Intel, to compile kernels without their
#                            devices: .tools/bin/with-device NAME PROGRAM ARGS...; x86-64 only
# On macOS, names the packages of Homebrew that are missing. Without apt or a network, prints one line that
# names what is missing and exits with 1.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/.tools
log=$tools/setup.log
suite=forky  # the Debian release that has glslang >= 15.3 and Mesa >= 26.1
vendor_suite=trixie  # the one whose Mesa has RADV_FORCE_FAMILY, and the source of Intel's shim
windows_suite=bookworm  # the oldest that this script supports
glslang_wanted=15.3  # first release with GL_EXT_bfloat16

# Each line: Debian's package, and how to see that it is installed, from Debian or elsewhere
needs='
g++                      command  g++
cmake                    command  cmake
ninja-build              command  ninja
make                     command  make
spirv-tools              command  spirv-val
glslang-tools            command  glslangValidator
curl                     command  curl
libvulkan-dev            header   vulkan/vulkan.h
libpcre2-dev             header   pcre2.h
nlohmann-json3-dev       header   nlohmann/json.hpp
libxxhash-dev            header   xxhash.h
zlib1g-dev               header   zlib.h
libzstd-dev              header   zstd.h
libedit-dev              header   editline/readline.h
libtomlplusplus-dev      header   toml++/toml.h
mesa-vulkan-drivers      file     /usr/share/vulkan/icd.d/lvp_icd*.json
'
# To build Intel's shim
vendor_needs='
libdrm-dev               header   libdrm/drm.h
libelf-dev               header   libelf.h
libexpat1-dev            header   expat.h
bison                    command  bison
flex                     command  flex
pkg-config               command  pkg-config
python3-mako             file     /usr/lib/python3/dist-packages/mako
python3-yaml             file     /usr/lib/python3/dist-packages/yaml
python3-packaging        file     /usr/lib/python3/dist-packages/packaging
'
windows_needs='
g++-mingw-w64-x86-64-posix  command  x86_64-w64-mingw32-g++-posix
libz-mingw-w64-dev       file     /usr/x86_64-w64-mingw32/lib/libz.a
wine64                   file     /usr/lib/wine/wine64
xvfb                     command  Xvfb
dpkg-dev                 command  dpkg-source
'
test_needs='
libgtest-dev             header   gtest/gtest.h
vulkan-validationlayers  file     /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json
libopenmpi-dev           file     /usr/include/*/mpi/mpi.h
openmpi-bin              command  mpirun
zstd                     command  zstd
spirv-cross              command  spirv-cross
dpkg-dev                 command  dpkg-shlibdeps
file                     command  file
'

say() { echo "setup: $*"; }
die() { echo "setup: $*" >&2; exit 1; }
have() { command -v "$1" >/dev/null; }

# Prints the packages of the table $needs that are missing. One compiler call checks all headers.
missing_packages() {
    local package kind what headers=''
    while read -r package kind what; do
        case $kind in
            command) have "$what" || echo "$package" ;;
            file) compgen -G "$what" >/dev/null || echo "$package" ;;
            header) headers+="#if !__has_include(<$what>)"$'\n'"MISSING $package"$'\n'"#endif"$'\n' ;;
        esac
    done <<<"$needs"
    if have g++; then
        g++ -E -P -x c++ - <<<"$headers" | sed -n 's/^MISSING //p' | tr -d ' '
    else
        sed -n 's/^MISSING //p' <<<"$headers"
    fi
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# apt_install PACKAGE...: logs all output
apt_install() {
    have apt-get || die "no apt on this system; install by hand (Debian's names): $*"
    [ "$(id -u)" = 0 ] || have sudo || die "neither root nor sudo; have installed: $*"
    say "installing $*"
    local options=(-y -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3)
    # an unrelated broken source also fails the update, so only the installation counts
    if ! { as_root apt-get "${options[@]}" update ||
        true
        as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get "${options[@]}" install --no-install-recommends "$@"
    } >>"$log" 2>&1 </dev/null; then
        die "apt could not install $* (network? log: $log)"
    fi
}

# The packages of Homebrew, which are only named, since nobody has built on macOS yet. Its bash is 3.2.
name_homebrew_packages() {
    local package missing=''
    have brew || die "install Homebrew, then run this again"
    for package in cmake ninja glslang spirv-tools vulkan-headers vulkan-loader molten-vk pcre2 xxhash zstd \
        nlohmann-json tomlplusplus libomp googletest; do
        brew list --versions "$package" >/dev/null 2>&1 || missing="$missing $package"
    done
    [ -z "$missing" ] || die "packages are missing: brew install$missing"
}

# Prints the address of a Debian archive: on Debian the one that apt is configured with, in any format, so
# that mirrors stay in use; elsewhere the official one, from python-apt's list of distributions.
# DEBIAN_MIRROR overrides both.
debian_archive() {
    local ID='' VERSION_CODENAME='' origin release component uri
    if [ -n "${DEBIAN_MIRROR:-}" ]; then
        echo "$DEBIAN_MIRROR"
        return
    fi
    . /etc/os-release
    if [ "$ID" = debian ]; then
        while IFS='|' read -r origin release component uri; do
            # before apt has the lists, it prints the format string instead of the origin
            if [[ $origin == Debian || $origin == '$('* ]] && [[ $component == main ]] &&
                [[ $release == "$VERSION_CODENAME" || $release == *stable || $release == testing ]]; then
                echo "$uri"
                return
            fi
        done < <(apt-get indextargets 'Identifier: Packages' \
            --format '$(ORIGIN)|$(RELEASE)|$(COMPONENT)|$(REPO_URI)')
    fi
    local list=/usr/share/python-apt/templates/Debian.info
    [ -e $list ] || apt_install python-apt-common >&2
    [ -e $list ] || die "the address of a Debian archive is unknown here: set DEBIAN_MIRROR"
    uri=$(sed -n '/^BaseURI: /{s///p;q}' $list)  # signatures are checked: plain http needs no certificates
    echo "http://${uri#*://}"
}

debian_keyring() {
    local file
    for file in /usr/share/keyrings/debian-archive-keyring.{gpg,pgp}; do
        if [ -e "$file" ]; then
            echo "$file"
            return
        fi
    done
}

# prepare_apt NAME FOLDER: sets `apt` to a command that downloads packages of Debian $suite, with source
# packages if $source is set, and keeps its state in the new FOLDER.
prepare_apt() {
    local name=$1 work=$2 archive keyring
    have apt-get || die "no apt on this system; install a newer $name by hand, as in Debian $suite or later"
    [ -n "$(debian_keyring)" ] || apt_install debian-archive-keyring
    keyring=$(debian_keyring)
    archive=$(debian_archive)
    rm -rf "$work"
    mkdir -p "$work"/{lists/partial,cache/archives/partial}
    : >"$work/status"
    printf '%s\n' "Types: deb ${source:+deb-src}" "URIs: $archive" "Suites: $suite" 'Components: main' \
        "Signed-By: $keyring" >"$work/debian.sources"
    apt=(apt-get -y -o Dir::Etc::SourceParts=/dev/null -o "Dir::Etc::SourceList=$work/debian.sources"
        -o "Dir::State::Lists=$work/lists" -o "Dir::State::status=$work/status" -o "Dir::Cache=$work/cache"
        -o Acquire::Languages=none -o Acquire::Retries=3 -o APT::Update::Error-Mode=any
        -o Acquire::Check-Valid-Until=false)
}

# unpack_newer FOLDER PACKAGE...: unpacks packages of $suite and all their dependencies, down to the C
# library, in .tools/FOLDER. apt downloads them with separate sources, lists and package state, in which
# nothing counts as installed. So it resolves dependencies and checks signatures, but does not change the
# system. The age of the lists is not checked, so an old mirror works, too. If $source is set, the archive of
# that source package comes along, and the package meson, which builds it.
unpack_newer() {
    local name=$1 folder=$tools/$1 work=$tools/$1.partial deb apt
    shift
    prepare_apt "$name" "$work"
    say "unpacking $* of Debian $suite in ${folder#"$PWD"/}"
    rm -rf "$folder"
    mkdir -p "$work/root"
    if ! { "${apt[@]}" update &&
        "${apt[@]}" install --no-install-recommends --download-only "$@" &&
        if [ -n "${source:-}" ]; then
            (cd "$work" && "${apt[@]}" source --download-only "$source" && "${apt[@]}" download meson)
        fi
    } >>"$log" 2>&1 </dev/null; then
        rm -rf "$work"
        die "could not download $* of Debian $suite (network? log: $log)"
    fi
    for deb in "$work"/cache/archives/*.deb; do
        dpkg-deb -x "$deb" "$work/root"
    done
    rm -rf "$work"/root/usr/share/{doc,man,locale,lintian,bug} "$work"/root/usr/lib/*/gconv
    if [ -n "${source:-}" ]; then
        mv "$work/$source"_*.orig.tar.xz "$work"/meson_*.deb "$work/root"
    fi
    mv "$work/root" "$folder"
    rm -rf "$work"
}

# loader FOLDER: the dynamic loader in an unpacked folder, as a path relative to it
loader() {
    (cd "$tools/$1" && compgen -G 'usr/lib/*-linux-gnu/ld-linux-*.so.*' | head -1)
}

# write_script NAME: writes standard input to .tools/bin/NAME, complete or not at all
write_script() {
    mkdir -p "$tools/bin"
    cat >"$tools/bin/$1.partial"
    chmod +x "$tools/bin/$1.partial"
    mv "$tools/bin/$1.partial" "$tools/bin/$1"
}

glslang_version() {
    "$1" --version | sed -n 's/^Glslang Version: [0-9]*:\([0-9.]*\).*/\1/p'
}

version_at_least() {
    printf '%s\n%s\n' "$2" "$1" | sort -V -C
}

newer_glslang() {
    local ld name
    unpack_newer glslang glslang-tools spirv-tools
    ld=$(loader glslang)
    for name in spirv-val spirv-opt glslang; do  # glslang last: if it exists, all do
        write_script "$name" <<END
#!/bin/sh
# Written by dev/setup.sh: $name of Debian $suite, on the C library unpacked with it.
top=\$(dirname "\$0")/../glslang
exec "\$top/$ld" --library-path "\$top/${ld%/*}" "\$top/usr/bin/$name" "\$@"
END
    done
    version_at_least "$(glslang_version "$tools/bin/glslang")" "$glslang_wanted" ||
        die "the glslang in ${tools#"$PWD"/} does not run or is older than $glslang_wanted"
}

newer_mesa() {
    local ld json
    if [ ! -x "$tools/bin/with-newer-mesa" ] || [ ! -d "$tools/mesa" ]; then
        unpack_newer mesa mesa-vulkan-drivers vulkan-validationlayers vulkan-tools
        find "$tools/mesa/usr" -name 'libvulkan_*.so' ! -name 'libvulkan_lvp.so' -delete  # hardware drivers
        # a bare file name is found on the library path, so the folder can be moved
        sed -i 's#\("library_path": *"\).*/#\1#' "$tools"/mesa/usr/share/vulkan/*/*.json
    fi
    ld=$(loader mesa)
    json=$(cd "$tools/mesa" && compgen -G 'usr/share/vulkan/icd.d/lvp_icd*.json' | head -1)
    write_script with-newer-mesa <<END
#!/bin/sh
# with-newer-mesa PROGRAM ARGS...: runs PROGRAM on lavapipe, the Vulkan loader and the validation layer of
# Debian $suite, and on the C library unpacked with them. vulkaninfo is there too. Written by dev/setup.sh.
top=\$(cd "\$(dirname "\$0")/../mesa" && pwd)
program=\$(PATH=\$top/usr/bin:\$PATH; command -v "\$1") ||
    { echo "with-newer-mesa: no program \$1" >&2; exit 127; }
shift
export VK_DRIVER_FILES="\$top/$json" VK_ICD_FILENAMES="\$top/$json"
export VK_LAYER_PATH="\$top/usr/share/vulkan/explicit_layer.d\${VK_ADD_LAYER_PATH:+:\$VK_ADD_LAYER_PATH}"
export VK_IMPLICIT_LAYER_PATH="\$top/usr/share/vulkan/implicit_layer.d"
exec "\$top/$ld" --library-path "\$top/${ld%/*}" "\$program" "\$@"
END
}

# clang with the headers of macOS, from Python's package ziglang.
macos_compiler() {
    { have python3 && python3 -c 'import ensurepip'; } 2>>"$log" || apt_install python3-venv
    rm -rf "$tools/zig"
    if ! { python3 -m venv "$tools/zig" && "$tools/zig/bin/pip" install ziglang==0.15.2; } >>"$log" 2>&1; then
        die "could not install Python's package ziglang in .tools/zig (network? log: $log)"
    fi
    write_script macos-c++ <<END
#!/bin/sh
# A C++ compiler for macOS on 64-bit Arm. Written by dev/setup.sh.
top=\$(dirname "\$0")/../zig
exec "\$top/bin/python" -m ziglang c++ -target aarch64-macos -fno-sanitize=undefined "\$@"
END
}

# Chromium's software device, from its package, without the browser.
swiftshader() {
    local ID='' folder=$tools/swiftshader work=$tools/swiftshader.partial
    . /etc/os-release
    [ "$ID" = debian ] || die "SwiftShader is in a package of Debian (chromium-common), and this is $ID"
    rm -rf "$work" "$folder"
    mkdir -p "$work"
    if ! (cd "$work" && { apt-get download chromium-common ||
        { as_root apt-get update && apt-get download chromium-common; }; }) >>"$log" 2>&1 </dev/null; then
        die "could not download chromium-common (network? log: $log)"
    fi
    dpkg-deb --fsys-tarfile "$work"/chromium-common_*.deb |
        tar -x -C "$work" --strip-components=4 --wildcards '*/*vk_swiftshader*'
    rm "$work"/*.deb
    mv "$work" "$folder"
    write_script with-swiftshader <<END
#!/bin/sh
# with-swiftshader PROGRAM ARGS...: runs PROGRAM on SwiftShader. Written by dev/setup.sh.
VK_DRIVER_FILES=\$(cd "\$(dirname "\$0")/../swiftshader" && pwd)/vk_swiftshader_icd.json
export VK_DRIVER_FILES VK_ICD_FILENAMES="\$VK_DRIVER_FILES"
exec "\$@"
END
}

# Builds Mesa's stand-in for the kernel driver of Intel's GPUs: a library to be preloaded.
build_intel_shim() {
    local folder=$tools/vendors build=$tools/vendors/build
    mkdir -p "$build/source" "$build/meson"
    tar -xf "$folder"/mesa_*.orig.tar.xz -C "$build/source" --strip-components=1
    dpkg-deb -x "$folder"/meson_*.deb "$build/meson"
    (
        cd "$build/source"
        # Debian's Python, whichever is first in PATH
        export PATH=/usr/bin:$PATH PYTHONPATH=$build/meson/usr/lib/python3/dist-packages
        python3 "$build/meson/usr/bin/meson" setup "$build/shim" -Dvulkan-drivers=intel_hasvk \
            -Dtools=drm-shim,intel -Dbuildtype=release -Dgallium-drivers= -Dplatforms= -Dvideo-codecs= \
            -Dopengl=false -D{glx,egl,gbm,llvm,gles1,gles2,zstd,valgrind,libunwind}=disabled
        ninja -C "$build/shim" src/intel/tools/libintel_noop_drm_shim.so
    ) >>"$log" 2>&1 </dev/null || die "could not build Mesa's shim for Intel's GPUs (log: $log)"
    mv "$build/shim/src/intel/tools/libintel_noop_drm_shim.so" "$folder/"
    rm -rf "$build" "$folder"/mesa_*.orig.tar.xz "$folder"/meson_*.deb
}

vendor_compilers() {
    [ "$(uname -m)" = x86_64 ] || die "the drivers of AMD and Intel are there for x86-64 only"
    local ld
    suite=$vendor_suite source=mesa unpack_newer vendors mesa-vulkan-drivers libvulkan1
    ld=$(loader vendors)
    sed -i 's#\("library_path": *"\).*/#\1#' "$tools"/vendors/usr/share/vulkan/icd.d/*.json
    build_intel_shim
    write_script with-device <<END
#!/bin/sh
# with-device NAME PROGRAM ARGS...: runs PROGRAM with the Vulkan driver of a GPU that is not there. It can
# compile kernels, but run none. Written by dev/setup.sh. NAME is one of
#   AMD    navi21 navi31 gfx1201 (RDNA 2, 3, 4), vega20, navi10, and others that RADV knows
#   Intel  dg2 (Arc A770), mtl (Meteor Lake), lnl (Lunar Lake), bmg (Battlemage), adl (UHD 770)
top=\$(cd "\$(dirname "\$0")/../vendors" && pwd)
name=\$1
program=\$(command -v "\$2") || { echo "with-device: no program \$2" >&2; exit 127; }
shift 2
case \$name in
    dg2 | mtl | lnl | bmg | adl) driver=intel preload="--preload \$top/libintel_noop_drm_shim.so" ;;
    navi* | gfx* | vega* | polaris* | raphael* | rembrandt*) driver=radeon preload= ;;
    *) echo "with-device: no device \$name; there are navi21, navi31, gfx1201, dg2, lnl, bmg" >&2; exit 1 ;;
esac
export INTEL_STUB_GPU_PLATFORM="\$name" RADV_FORCE_FAMILY="\$name" LAUNCHPAD_WITHOUT_DEVICE=1
export MESA_SHADER_CACHE_DISABLE=true VK_LOADER_LAYERS_DISABLE='~all~'
json=\$(echo "\$top"/usr/share/vulkan/icd.d/\${driver}_icd*.json)
export VK_DRIVER_FILES="\$json" VK_ICD_FILENAMES="\$json"
exec "\$top/$ld" \$preload --library-path "\$top/${ld%/*}" "\$program" "\$@"
END
}

# Whether clang++ can build a fuzzer.
fuzzer_works() {
    have clang++ &&
        clang++ -fsanitize=fuzzer,address,undefined -x c++ -o "$tools/fuzzer-works" - 2>>"$log" <<'END'
#include <cstddef>
#include <cstdint>
extern "C" int LLVMFuzzerTestOneInput(const uint8_t*, size_t) { return 0; }
END
}

# cross_build PACKAGE FOLDER OPTION...: builds Debian's source package for Windows with CMake.
cross_build() {
    local package=$1 folder=$2 work=$tools/windows.partial
    shift 2
    mkdir -p "$work/$package"
    tar -xf "$work/${package}"_*.orig.tar.?z -C "$work/$package" --strip-components=1 &&
    cmake -S "$work/$package/$folder" -B "$work/$package/cross" -G Ninja -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/windows/mingw.cmake" -DCMAKE_INSTALL_PREFIX="$work/root" \
        -DBUILD_SHARED_LIBS=OFF "$@" &&
    cmake --build "$work/$package/cross" && cmake --install "$work/$package/cross"
}

# The libraries of the programs and tests, cross-built for Windows from Debian's sources. Libraries that are
# headers only are used as they are; zlib is a package of its own.
windows_libraries() {
    local work=$tools/windows.partial apt source=yes name
    suite=$windows_suite
    prepare_apt "cross-built libraries" "$work"
    say "building PCRE2, zstd and GoogleTest of Debian $suite for Windows in .tools/windows"
    if ! { "${apt[@]}" update &&
        (cd "$work" && "${apt[@]}" source --download-only pcre2 libzstd googletest) &&
        cross_build pcre2 . -DPCRE2_BUILD_PCRE2GREP=OFF -DPCRE2_BUILD_TESTS=OFF -DPCRE2_SUPPORT_JIT=ON &&
        cross_build libzstd build/cmake -DZSTD_BUILD_PROGRAMS=OFF -DZSTD_BUILD_SHARED=OFF &&
        cross_build googletest . -DBUILD_GMOCK=OFF
    } >>"$log" 2>&1 </dev/null; then
        rm -rf "$work"
        die "could not build the libraries for Windows (log: $log)"
    fi
    mkdir -p "$work/root/include"
    for name in vulkan vk_video nlohmann toml++ xxhash.h xxh3.h; do
        ln -s "/usr/include/$name" "$work/root/include/$name"
    done
    rm -rf "$tools/windows"
    mv "$work/root" "$tools/windows"
    rm -rf "$work"
}

# libFuzzer and the sanitizer runtimes are in a package named after clang's version.
fuzzer() {
    fuzzer_works && return
    have clang++ || apt_install clang
    fuzzer_works || apt_install "libclang-rt-$(clang++ -dumpversion | cut -d. -f1)-dev"
    fuzzer_works || die "clang++ cannot build with -fsanitize=fuzzer (see $log)"
}

# Ubuntu's package of that name needs snap, which does not run in containers.
chromium_browser() {
    local ID=''
    . /etc/os-release
    if have chromium || [ "$ID" != debian ]; then return; fi
    apt_install chromium
}

case ${1:-} in
    train) ;;
    '' | chromium | fuzz | newer-mesa | swiftshader | macos) needs+=$test_needs ;;
    vendor-compilers) needs+=$vendor_needs ;;
    windows) needs+=$test_needs$windows_needs ;;
    *) die "unknown word $1; usage: dev/setup.sh [train | chromium | fuzz | newer-mesa | swiftshader |" \
        "macos | windows | vendor-compilers]" ;;
esac
if [ "$(uname)" = Darwin ]; then
    name_homebrew_packages
    exit
fi
mkdir -p "$tools"
packages=$(missing_packages)
if [ -n "$packages" ]; then
    apt_install $packages
fi
if [ ! -x "$tools/bin/glslang" ] &&
    ! version_at_least "$(glslang_version glslangValidator)" "$glslang_wanted"; then
    newer_glslang
fi
if [ "${1:-}" = chromium ]; then
    chromium_browser
fi
if [ "${1:-}" = fuzz ]; then
    fuzzer
fi
if [ "${1:-}" = newer-mesa ]; then
    newer_mesa
fi
if [ "${1:-}" = swiftshader ] &&
    { [ ! -x "$tools/bin/with-swiftshader" ] || [ ! -d "$tools/swiftshader" ]; }; then
    swiftshader
fi
if [ "${1:-}" = macos ] && { [ ! -x "$tools/bin/macos-c++" ] || [ ! -d "$tools/zig" ]; }; then
    macos_compiler
fi
if [ "${1:-}" = vendor-compilers ] &&
    { [ ! -x "$tools/bin/with-device" ] || [ ! -d "$tools/vendors" ]; }; then
    vendor_compilers
fi
if [ "${1:-}" = windows ] && [ ! -d "$tools/windows" ]; then
    windows_libraries
fi
