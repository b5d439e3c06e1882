#!/bin/bash
# Trains a small GPT-2 on bytes and draws its loss curve: on a generated corpus whose entropy, the lowest loss any
# model can reach, is known, or on the text file named by the variable TEXT. Run by `make train`, or as:
#   [TEXT=file.txt] dev/train.sh [options of train_gpt2, which come last and so win]
# Corpus and tokens are made once, in data/corpus/; log, checkpoints and plot go to runs/NAME/.
set -euo pipefail
text=${TEXT:+$(realpath -- "$TEXT")}
cd "$(dirname "$0")/.."
die() { echo "train.sh: $*" >&2; exit 1; }

corpus=data/corpus
mkdir -p $corpus
if [ -n "$text" ]; then
    [ -r "$text" ] || die "TEXT: no readable file $text"
    name=$(basename "${text%.*}" | tr -c 'A-Za-z0-9._\n-' _)
    maker=$text
    floor=()
else
    name=stories
    text=$corpus/$name.txt
    maker=data/make_corpus.cpp
    if [ ! $corpus/$name.json -nt $maker ]; then
        build/make_corpus --out $corpus/$name --bytes 8000000 --seed 1 --tokenizer bytes
    fi
    floor=(--floor "$(sed -n 's/.*"nats_per_token": *\([0-9.eE+-]*\).*/\1/p' $corpus/$name.json)")
fi

# a tenth of the text, but no more than 32768 tokens, is kept for validation
val_tokens=$(($(stat -L -c %s "$text") / 10))
val_tokens=$((val_tokens < 32768 ? val_tokens : 32768))
# the stamp says of which file and by which rules the tokens were made
stamp=$corpus/$name.prepared
made_of="$text $(stat -L -c '%s %Y' "$text") bytes $val_tokens"
if [ "$(cat "$stamp" 2>/dev/null)" != "$made_of" ]; then
    rm -f "$stamp" "$corpus/${name}"_{train,val}*.bin
    build/prepare_data --tokenizer bytes --split-documents blank-line --val-tokens $val_tokens \
        --out $corpus --name "$name" "$text"
    echo "$made_of" >"$stamp"
fi

run=runs/$name
mkdir -p "$run"
build/train_gpt2 -i "$corpus/${name}_train*.bin" -j "$corpus/${name}_val*.bin" \
    -e custom:layers=4,heads=4,channels=128,max_seq_len=256 -o "$run" -b 8 -t 256 -x 1000 -l 0.001 \
    -v 50 -s 250 -g 400 -n 500 --tokenizer bytes --device auto "$@"
dev/plot_loss.sh "${floor[@]}" "$run"
