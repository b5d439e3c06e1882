#!/usr/bin/env bash
# Runs every fuzz program of a build folder for so many seconds, as many at a time as there are cores, from the seeds
# that make_seeds writes and what earlier runs found (BUILD/corpus/). A finding stops with 1 and is kept in
# BUILD/findings/; BUILD/fuzz/<program> FILE runs it again.
#     fuzz/run.sh [BUILD [SECONDS]]
set -euo pipefail
build=$(cd "${1:-build-fuzz}" && pwd)
seconds=${2:-60}
mkdir -p "$build/findings" "$build/corpus"
"$build/fuzz/make_seeds" "$build/seeds"
export OMP_NUM_THREADS=1

# Files of 64 KB at most, so an allocation of 256 MB is one that a header asked for.
fuzz_one() {
    local program=$1 name log
    name=$(basename "$program")
    log=$build/findings/$name.log
    mkdir -p "$build/corpus/$name"
    if "$program" -max_total_time="$seconds" -max_len=65536 -malloc_limit_mb=256 -timeout=20 -rss_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix="$build/findings/$name-" "$build/corpus/$name" "$build/seeds/$name" \
        >"$log" 2>&1; then
        echo "fuzz: $name: $(awk '/number_of_executed_units/ { print $2 }' "$log") files, nothing found"
    else
        grep -E 'ERROR|SUMMARY|runtime error|Test unit written' "$log" | head -5 || tail -5 "$log"
        echo "fuzz: $name: FOUND SOMETHING, see $log" >&2
        return 1
    fi
}
export -f fuzz_one
export build seconds
printf '%s\n' "$build"/fuzz/*_fuzz | xargs -P "$(nproc)" -I{} bash -c 'fuzz_one {}'
