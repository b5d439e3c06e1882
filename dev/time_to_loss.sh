#!/bin/bash
# Compares recipes by the time they take to a loss: trains each on the same data, and prints the validation
# loss at the end, the best one, and the steps, tokens and seconds to a target. Plots the losses over tokens
# and over seconds. Run as:
#   dev/time_to_loss.sh [--target LOSS] [--out FOLDER] [--build FOLDER] RECIPES [options of train_gpt2]
# RECIPES is a file with a line per recipe: a name, then its options of train_gpt2; # begins a comment. The
# options after RECIPES are those of all recipes, so -x -v -i -j -e -b belong there. The default target is the
# loss at the end of the first recipe. The runs go to FOLDER/NAME, which must not exist (default
# runs/time_to_loss). Steps and seconds to the target are interpolated between validations, and the seconds
# include those. dev/recipes.txt has AdamW and Muon, tuned.
set -euo pipefail
export LC_ALL=C
printable() { printf '%s' "$*" | tr '\000-\037\177' '?'; }  # on one line, and nothing acts on a terminal
die() { printf 'time_to_loss.sh: %s\n' "$(printable "$*")" >&2; exit 1; }
log_begins='# dev/time_to_loss.sh:' table_begins='| recipe | loss at the end '
# Error if a file $1 is there that does not begin with $2: this script has not written it.
check_output() {
    [ -e "$1" ] || [ -L "$1" ] || return 0
    [ -f "$1" ] && [ ! -L "$1" ] && [ "$(head -c ${#2} "$1" | tr -d '\0')" = "$2" ] ||
        die "$1 is there, and this script has not written it: move it, or choose another --out"
}
usage='usage: dev/time_to_loss.sh [--target LOSS] [--out FOLDER] [--build FOLDER] RECIPES [options]'

if [[ ${1:-} = --help || ${1:-} = -h ]]; then
    sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0"
    exit
fi
target='' out=runs/time_to_loss build=build
while [[ ${1:-} = --* ]]; do
    [ $# -ge 2 ] || die "$1 needs a value; $usage"
    case $1 in
        --target)
            target=$2
            [[ $target =~ ^[0-9]+(\.[0-9]+)?$ ]] || die "--target needs a loss, not '$target'" ;;
        --out) out=$2 ;;
        --build) build=$2 ;;
        *) die "unknown option $1; $usage" ;;
    esac
    shift 2
done
[ $# -ge 1 ] || die "$usage"
recipes=$1
shift
[ -f "$recipes" ] || die "there is no file $recipes"
[ -x "$build/train_gpt2" ] || die "there is no $build/train_gpt2: run 'make build' first"

# All recipes are read, and their folders checked, before the first one trains.
names=() options=()
while read -r name rest || [ -n "$name" ]; do
    [[ -z $name || $name = \#* ]] && continue
    [[ $name =~ ^[A-Za-z0-9._-]+$ && $name != .* ]] ||
        die "$recipes: '$name' is no name of letters, digits, '.', '_' and '-'"
    [[ $name != *.@(md|log|svg) ]] || die "$recipes: '$name' must not end in .md, .log or .svg"
    [[ " ${names[*]-} " != *" $name "* ]] || die "$recipes: two recipes are named $name"
    [ ! -e "$out/$name" ] || die "$out/$name exists: move it, or choose another --out"
    check_output "$out/$name.log" "$log_begins"
    names+=("$name") options+=("${rest%%#*}")
done <"$recipes"
[ ${#names[@]} -gt 0 ] || die "$recipes has no recipe"
check_output "$out/table.md" "$table_begins"

mkdir -p "$out"
scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT
for i in "${!names[@]}"; do
    read -ra own <<<"${options[i]}"
    printf '%s\n' "$(printable "${names[i]}: ${options[i]}")"
    log=$out/${names[i]}.log
    printf '%s\n' "$log_begins $(printable "${options[i]}")" >"$log"
    # Checkpoints would be counted as time.
    "$build/train_gpt2" "$@" "${own[@]}" -o "$out/${names[i]}" -n 0 --no-keep-best -s 0 >>"$log" 2>&1 ||
        die "${names[i]} failed: $(tail -n 1 "$log"); see $log"
done

# losses NAME: step, tokens, seconds and loss of each validation of a run
losses() {
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i
                       if (!("val_loss" in column)) exit 1; next }
             $column["val_loss"] != "" {
                 print $column["step"], $column["tokens"], $column["seconds"], $column["val_loss"] }' \
        "$out/$1/metrics.csv"
}
for name in "${names[@]}"; do
    losses "$name" >"$scratch/$name" || die "$out/$name/metrics.csv has no validation losses"
    [ -s "$scratch/$name" ] || die "$name was never validated: give -j, and -v"
done
[ -n "$target" ] || target=$(awk 'END { print $4 }' "$scratch/${names[0]}")

{
    printf "$table_begins"'| best | steps to %s | tokens | seconds | of the first |\n' "$target"
    echo '|---|---|---|---|---|---|---|'
    first=''
    for name in "${names[@]}"; do
        row=$(awk -v target="$target" -v first="$first" '
            function at(a, b) { return a + (b - a) * (before[4] - target) / (before[4] - $4) }
            $4 == $4 + 0 && (best == "" || $4 < best) { best = $4 }
            !reached && $4 <= target + 0 {
                reached = 1
                if (NR == 1) { steps = $1; tokens = $2; seconds = $3 }
                else { steps = at(before[1], $1); tokens = at(before[2], $2); seconds = at(before[3], $3) }
            }
            { for (i = 1; i <= 4; i++) before[i] = $i }
            END {
                printf "%.4f | %.4f | ", before[4], best
                if (!reached) print "never | | | |"
                else printf "%.0f | %.0f | %.3f | %s |\n", steps, tokens, seconds,
                            (first == "" ? "1" : sprintf("%.3f", seconds / first))
            }' "$scratch/$name")
        [ -n "$first" ] || first=$(awk -F' [|] ' '{ print $5 + 0 }' <<<"$row")
        echo "| $name | $row"
    done
} | tee "$out/table.md"

folders=()
for name in "${names[@]}"; do folders+=("$out/$name"); done
for axis in tokens seconds; do "$build/train_gpt2" --plot "${folders[@]}" --plot-over $axis; done
