#!/bin/bash
# Compares models of GPT-2's widths with PyTorch: random weights, d36's and d48's channels and heads, two
# layers, logits, loss and gradients of a step; in fp32, the losses of ten, too, which diverge in 16 bits as
# they fall. Needs PyTorch (dev/make_reference.py) and the program test_gpt2.
#
#     dev/check_wide_models.sh [--device D]
#
# PYTHON names the Python that has PyTorch, BUILD the folder of the programs.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build}
python=${PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT

check() {  # NAME CHANNELS HEADS [--device D]
    local name=$1 channels=$2 heads=$3
    shift 3
    "$python" dev/make_reference.py --layers 2 --heads "$heads" --channels "$channels" --max-seq-len 128 \
        --vocab 1000 --batch 2 --seq 128 --random-all --out "$folder/$name"
    local files=("$folder/$name.bin" "$folder/${name}_debug_state_f64.bin")
    echo "$name, two layers:"
    "$build/test_gpt2" "$@" --losses "$folder/${name}_losses.txt" "${files[@]}"
    for precision in bf16 fp16; do
        "$build/test_gpt2" "$@" --precision "$precision" "${files[@]}"
    done
}

check d36 1280 20 "$@"
check d48 1600 25 "$@"
