#!/bin/bash
# Fails if a function with SIMD_CLONES (llmc/cpu/simd.h) calls another function of its file instead of
# inlining it, and prints the call: the called function is compiled for the base instruction set. The argument
# is the library.
set -euo pipefail
command -v objdump >/dev/null || exit 77  # skipped
calls=$(objdump -d --no-show-raw-insn "$1" | awk '
    / file format / { file = $1 }
    /^[0-9a-f]+ <.*>:$/ { name = $2; clone = name ~ /\.arch_x86_64_v[34]/ }
    clone && /[\t ](call|jmp) .*<_Z/ && !/\+0x/ && !/\.arch_x86_64|\.resolver/ { print file, name, $NF }' |
    c++filt | sort -u)
if [ -n "$calls" ]; then
    echo "$calls"
    echo "declare the called functions SIMD_INLINE"
    exit 1
fi
echo "clones: they call no function of their file"
