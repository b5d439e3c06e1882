#!/bin/bash
# Prints which models train on GPUs of several sizes, which need not be there: the table "What fits" of
# docs/devices.md. A cell has the batch and the options that -b auto takes for steps of 524,288 tokens.
#
#   [BUILD=build] [MODELS="d12 d24 d36 d48"] dev/what_fits.sh [SIZE...]    # in GiB; default: 6 8 12 16 24 80
set -euo pipefail
build=${BUILD:-build}
sizes=${*:-6 8 12 16 24 80}
refuse() {
    echo "what_fits.sh: $1: dev/what_fits.sh [SIZE...], such as 6 8 12" >&2
    exit 1
}
for size in $sizes; do
    [[ $size =~ ^[1-9][0-9]{0,3}$ ]] || refuse "$size is not a size in GiB"
done
[ -x "$build/train_gpt2" ] || refuse "$build/train_gpt2 is missing; make build, or BUILD=... before it"

# The options of -b auto for a model ($1) on a GPU of $2 GiB, as the cell of a table.
cell() {
    local plan
    if plan=$("$build/train_gpt2" --dry-run=memory --device-memory "$2G" -e "$1" --precision bf16 -t 1024 \
        -d 524288 -b auto --device cpu 2>&1); then
        sed -n 's/^note: -b auto is \(-b.*\), which fits.*/`\1`/p' <<<"$plan" |
            sed 's/ --offload optimizer`/` o/'
    elif grep -q 'out of memory' <<<"$plan"; then
        echo "-"
    else
        echo "$plan" >&2
        exit 1
    fi
}

echo "| GiB | $(sed 's/ / | /g' <<<"${MODELS:-d12 d24 d36 d48}") |"
echo "|---|$(printf -- '---|%.0s' ${MODELS:-d12 d24 d36 d48})"
for size in $sizes; do
    line="| $size |"
    for model in ${MODELS:-d12 d24 d36 d48}; do line+=" $(cell "$model" "$size") |"; done
    echo "$line"
done
