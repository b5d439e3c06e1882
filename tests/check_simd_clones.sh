#!/bin/bash
# Fails if a function that runs through simd<> (llmc/cpu/simd.h) calls another C++ function instead of inlining it,
# and prints the call: the called function is compiled for the base instruction set. A call is seen in the
# code, or as a relocation after it. The argument is the library.
set -euo pipefail
[ "$(uname -m)" = x86_64 ] && command -v objdump >/dev/null || exit 77  # skipped
found=$(objdump -dr --no-show-raw-insn "$1" | awk '
    / file format / { file = $1 }
    /^[0-9a-f]+ <.*>:$/ { name = $2; clone = name ~ /SimdClones.*2v[34]E/; clones += clone }
    !clone { next }
    /[\t ](call|jmp) .*<_Z/ && !/\+0x/ { print file, name, $NF }
    /R_X86_64_(PLT32|PC32)[\t ]+_Z/ && after_call { print file, name, $NF }
    { after_call = /[\t ](call|jmp) / }
    END { print "clones:", clones }' | c++filt | sort -u)
calls=$(grep -v '^clones:' <<<"$found" || true)
if [ -n "$calls" ]; then
    echo "$calls"
    echo "declare the called functions SIMD_INLINE"
    exit 1
fi
if [ "${found##*clones: }" -eq 0 ]; then
    echo "$1 has no clones: is their name another one with this compiler?"
    exit 1
fi
echo "$found, which call no other C++ function"
