#!/usr/bin/env bash
# Runs every fuzz program of a build folder for SECONDS each, one per core at a time. They start from the
# seeds of make_seeds and the inputs of earlier runs (BUILD/corpus/). A finding is kept in BUILD/findings/ and
# gives a status other than 0; BUILD/fuzz/<program> -malloc_limit_mb=256 FILE reproduces it.
#     fuzz/run.sh [BUILD [SECONDS]]
set -euo pipefail
build=$(cd "${1:-build-fuzz}" && pwd)
seconds=${2:-60}
mkdir -p "$build/findings" "$build/corpus"
"$build/fuzz/make_seeds" "$build/seeds"
export OMP_NUM_THREADS=1

# Inputs have at most 64 KiB, so an allocation of 256 MB is one that an unchecked header asked for.
fuzz_one() {
    local program=$1 name log
    name=$(basename "$program")
    log=$build/findings/$name.log
    mkdir -p "$build/corpus/$name"
    if "$program" -max_total_time="$seconds" -max_len=65536 -malloc_limit_mb=256 -timeout=5 \
        -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$build/findings/$name-" \
        "$build/corpus/$name" "$build/seeds/$name" >"$log" 2>&1; then
        echo "fuzz: $name: $(awk '/number_of_executed_units/ { print $2 }' "$log") inputs, no findings"
    else
        grep -E 'ERROR|SUMMARY|runtime error|Assertion|what\(\)|Test unit written|Base64' "$log" | head -8 ||
            tail -5 "$log"
        echo "fuzz: $name: FAILED, see $log" >&2
        return 1
    fi
}
export -f fuzz_one
export build seconds
printf '%s\n' "$build"/fuzz/*_fuzz | xargs -P "$(nproc)" -I{} bash -c 'set -o pipefail; fuzz_one {}'
