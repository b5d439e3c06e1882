#!/bin/bash
# Runs every benchmark program in build/ and saves its results to build/bench/NAME.json. Run by `make bench`,
# or as:
#   dev/bench.sh [--benchmark_filter=... or any other option of Google Benchmark]
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build/bench
found=0
for program in build/bench_*; do
    [ -x "$program" ] || continue
    found=1
    name=${program#build/bench_}
    echo "== $name"
    "$program" --benchmark_out="build/bench/$name.json" --benchmark_out_format=json "$@"
done
[ $found = 1 ] || { echo "bench.sh: there is no build/bench_* program; run make build" >&2; exit 1; }
