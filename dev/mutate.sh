#!/usr/bin/env bash
# Mutation testing: applies each mutation of dev/mutations.txt to a copy of the sources, builds the tests that
# the mutation names and runs them. A mutation that no test notices survives. Prints a line per mutation and
# the score; the status is 1 if a mutation survives and the list does not say why.
#     dev/mutate.sh [--folder FOLDER] [--check] [NUMBER | FIRST-LAST | WORD]...
# Without numbers and words: all mutations. A word chooses the mutations whose line contains it.
#     --folder FOLDER   the copy and its build folder; default: $TMPDIR/mutants. Each run makes the copy equal
#                       to this tree first, also if the last run was killed in the middle of a mutation.
#     --check           only check that each mutation changes one line; builds nothing
set -euo pipefail
tree=$(cd "$(dirname "$0")/.." && pwd)
folder=${TMPDIR:-/tmp}/mutants
check=
chosen=()
while [ $# -gt 0 ]; do
    case $1 in
        --folder) folder=$2 && shift ;;
        --check) check=1 ;;
        -*) sed -n '2,/^set/ { /^#/ s/^# \?//p }' "$0" && exit 1 ;;
        *) chosen+=("$1") ;;
    esac
    shift
done
[ -n "$check" ] || mkdir -p "$folder"
[ -n "$check" ] || folder=$(cd "$folder" && pwd)
source=$folder/source
build=$folder/build
list=$tree/dev/mutations.txt
export GALLIVM_PERF=nopt OMP_WAIT_POLICY=passive

trim() { sed 's/^[[:space:]]*//; s/[[:space:]]*$//' <<<"$1"; }

# Splits a line of the list into file, expression, tests and note.
parse() {
    local rest=$1
    file=$(trim "${rest%% :: *}") && rest=${rest#* :: }
    expression=$(trim "${rest%% :: *}") && rest=${rest#* :: }
    tests=$(trim "${rest%% :: *}")
    note=
    [[ $rest != *" :: "* ]] || note=$(trim "${rest#* :: }")
}

is_chosen() {  # number, line
    [ ${#chosen[@]} -gt 0 ] || return 0
    local c
    for c in "${chosen[@]}"; do
        if [[ $c =~ ^[0-9]+$ ]]; then
            [ "$1" -ne "$c" ] || return 0
        elif [[ $c =~ ^([0-9]+)-([0-9]+)$ ]]; then
            { [ "$1" -lt "${BASH_REMATCH[1]}" ] || [ "$1" -gt "${BASH_REMATCH[2]}" ]; } || return 0
        elif [[ $2 == *"$c"* ]]; then
            return 0
        fi
    done
    return 1
}

# Prints the mutated file of a tree; fails unless exactly one line differs.
mutated() {
    local changed
    sed "$expression" "$1/$file" >"$scratch/mutated" || return 1
    changed=$(diff "$1/$file" "$scratch/mutated" | grep -c '^[<>]' || true)
    # a changed line is one < and one >; a removed one only <
    [ "$changed" -eq 2 ] || { [ "$changed" -eq 1 ] && [[ $expression == */d ]]; }
}

# Makes the copy equal to the tree. Files that did not change keep their time, so little is built again.
sync_sources() {
    local name changed=
    if [ -e "$source" ] && [ ! -d "$folder/passed" ]; then
        echo "mutate.sh: $source is there, and this script has not made it: choose another --folder" >&2
        exit 2
    fi
    mkdir -p "$folder/passed" "$source"
    git -C "$tree" ls-files -co --exclude-standard -z >"$scratch/names"
    while IFS= read -r -d '' name; do
        { [ -f "$tree/$name" ] && ! cmp -s "$tree/$name" "$source/$name"; } || continue
        mkdir -p "$(dirname "$source/$name")"
        cp "$tree/$name" "$source/$name"
        changed=1
    done <"$scratch/names"
    while IFS= read -r -d '' name; do
        [ -f "$tree/$name" ] || { rm "$source/$name" && changed=1; }
    done < <(cd "$source" && find . -type f -printf '%P\0')
    [ ! -d "$tree/.tools" ] || ln -sfn "$tree/.tools" "$source/.tools"
    [ -n "$changed" ] || [ ! -e "$build/build.ninja" ] || return 0
    rm -rf "$folder/passed" && mkdir -p "$folder/passed"
    # -O1 builds in a third of the time; no test depends on more
    cmake -S "$source" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O1 \
        -DWITH_BENCHMARKS=OFF >"$folder/cmake.log"
}

# The targets that a test needs: its program, and the programs that it starts.
targets_of() {
    local test=$1 name sources files=()
    echo "$test"
    mapfile -t files < <(cd "$source" && find tests -name "$test.cpp" &&
        find tests -name "$test.cpp" -exec grep -ohE 'tests/[a-z_0-9]+\.h' {} +)
    local programs='tiny_run.h|BINARY_DIR "/[a-z_0-9]+"|\$BIN/[a-z_0-9]+'
    for name in $(cd "$source" && grep -ohE "$programs" "${files[@]}" |
        sed 's,.*/,,; s/"//; s/tiny_run.h/train_gpt2/' | sort -u); do
        for sources in "$source" "$source"/{data,dev/report,dev/vulkan,tests/windows}; do
            [ ! -e "$sources/$name.cpp" ] || echo "$name"
        done
    done
}

build_tests() {
    local spec targets in
    for spec in $tests; do
        in=$build
        [[ $spec != wine/* ]] || { in=$build-windows && configure_windows; }
        spec=${spec#cpu/} spec=${spec#wine/}
        mapfile -t targets < <(targets_of "${spec%%:*}")
        nice -n 19 ninja -C "$in" -j1 "${targets[@]}" >"$folder/build.log" 2>&1 || return 1
    done
}

configure_windows() {
    [ ! -e "$build-windows/build.ninja" ] || return 0
    cmake -S "$source" -B "$build-windows" -G Ninja -DCMAKE_BUILD_TYPE=Release -DWITH_SHADERS=OFF \
        -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DWITH_BENCHMARKS=OFF \
        -DCMAKE_TOOLCHAIN_FILE="$source/cmake/windows/mingw.cmake" >"$folder/cmake.log"
}

# Runs a test, as "[cpu/|wine/]PROGRAM[:FILTER]"; cpu/: only its parts without a GPU; wine/: for Windows.
run_test() {
    local program=${1%%:*} device=${LLMC_TEST_DEVICE:-} filter='*' tries=1 status
    [[ $1 != wine/* ]] || tries=3  # busy machines: now and then Wine fails to start a program
    local command=("./${program#cpu/}")
    [[ $program != */* ]] || device=none
    [[ $program != wine/* ]] ||
        command=("$source/dev/windows_tests.sh" -- "$build-windows/${program#wine/}.exe")
    [[ $1 != *:* ]] || filter=${1#*:}
    until (cd "$build" && LLMC_TEST_DEVICE=$device WINEPREFIX=$folder/wine nice -n 19 timeout -k 5 600 \
        "${command[@]}" "--gtest_filter=$filter" --gtest_fail_fast >"$folder/test.log" 2>&1 </dev/null 9>&-); do
        status=$? tries=$((tries - 1))
        [ $tries -gt 0 ] && [ $status -ne 124 ] || return $status
    done
}

# The tests must pass without a mutation, or they prove nothing.
check_baseline() {
    local spec stamp
    build_tests || {
        tail -20 "$folder/build.log"
        echo "mutate.sh: the sources do not build" >&2
        exit 2
    }
    for spec in $tests; do
        stamp=$folder/passed/${LLMC_TEST_DEVICE:-}$(tr '/*:' '___' <<<"$spec")
        [ ! -e "$stamp" ] || continue
        if ! run_test "$spec" || ! grep -q 'PASSED.* [1-9]' "$folder/test.log"; then
            tail -20 "$folder/test.log"
            echo "mutate.sh: $spec fails without a mutation, or runs no test" >&2
            exit 2
        fi
        touch "$stamp"
    done
}

# Sets verdict.
try_mutation() {
    local spec status
    check_baseline
    cp "$source/$file" "$scratch/original"
    mutated "$source" && cp "$scratch/mutated" "$source/$file"
    verdict=survived
    if ! build_tests; then
        verdict="error: it does not build"
    else
        for spec in $tests; do
            status=0
            run_test "$spec" || status=$?
            [ "$status" -ne 0 ] || continue
            verdict="killed by ${spec%%:*}"
            case $status in
                124) verdict+=" (timeout)" ;;
                132 | 134 | 136 | 139) verdict+=" (crash)" ;;
                *)
                    grep -q FAILED "$folder/test.log" ||
                        verdict="error: ${spec%%:*} ended with status $status"
                    ;;
            esac
            break
        done
    fi
    cp "$scratch/original" "$source/$file"
    rm "$scratch/original"
}

scratch=$(mktemp -d)
trap '[ ! -e "$scratch/original" ] || cp "$scratch/original" "$source/$file"; rm -rf "$scratch"' EXIT
if [ -z "$check" ]; then
    exec 9>"$folder/lock"
    flock -n 9 || { echo "mutate.sh: another run uses $folder: give this one a --folder" >&2 && exit 2; }
    sync_sources
fi
number=0 tried=0 killed=0 survivors=0 equivalent=0 errors=0 unexplained=0
while IFS= read -r line; do
    [[ $line != "" && $line != \#* ]] || continue
    number=$((number + 1))
    is_chosen "$number" "$line" || continue
    parse "$line"
    tried=$((tried + 1))
    where=$source
    [ -z "$check" ] || where=$tree
    if ! mutated "$where"; then
        verdict="error: it does not change exactly one line"
    elif [ -n "$check" ]; then
        continue
    else
        try_mutation
    fi
    case $verdict in
        killed*) killed=$((killed + 1)) ;;
        survived)
            if [[ $note == equivalent* ]]; then
                equivalent=$((equivalent + 1))
            else
                survivors=$((survivors + 1))
            fi
            verdict=${note:+survived, $note}
            verdict=${verdict:-SURVIVED}
            [ -n "$note" ] || unexplained=$((unexplained + 1)) ;;
        *) errors=$((errors + 1)) ;;
    esac
    echo "$number $verdict: $file: $expression"
done <<<"$(<"$list")"  # read at once: an edit does not disturb the run
if [ -n "$check" ]; then
    echo "$tried mutations, $errors of which do not change exactly one line"
    exit $((errors > 0))
fi
score=$((tried > errors + equivalent ? 100 * killed / (tried - errors - equivalent) : 0))
echo "$tried mutations: $killed killed, $survivors survived, $equivalent equivalent, $errors errors;" \
    "score $score %"
exit $((unexplained + errors > 0))
