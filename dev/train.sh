#!/bin/bash
# Trains a small GPT-2 on bytes and draws its loss curve: on a generated corpus whose entropy, the lowest loss that
# any model can reach, is known, or on the text file named by the variable TEXT. Run by `make train`, or as:
#   [TEXT=file.txt] dev/train.sh [options of train_gpt2, which come last and so win]
#   [TEXT=file.txt] dev/train.sh check      only looks whether the text will do, before minutes of building
# Corpus and tokens are made once, in data/corpus/; log, checkpoints and plot go to runs/NAME/.
set -euo pipefail
die() { echo "train.sh: $*" >&2; exit 1; }
text=${TEXT:+$(realpath -- "$TEXT")}
cd "$(dirname "$0")/.."
corpus=data/corpus
val_tokens=32768
floor=()

if [ -n "$text" ]; then
    [[ -f $text && -r $text ]] || die "TEXT: no readable file $text"
    bytes=$(stat -L -c %s "$text")
    [ "$bytes" -ge 20000 ] || die "TEXT: $text has $bytes bytes; too few to train on, 20000 are the least"
fi
if [ "${1:-}" = check ]; then exit; fi
mkdir -p $corpus

if [ -z "$text" ]; then
    name=stories
    text=$corpus/stories.txt
    # made again when the generator or this script (the size, the seed) has changed since
    if [[ ! $corpus/stories.json -nt data/make_corpus.cpp || ! $corpus/stories.json -nt dev/train.sh ]]; then
        build/make_corpus --out $text --bytes 8000000 --seed 1 --tokenizer bytes --val-tokens $val_tokens
    fi
    value() { sed -n "s/.*\"$1\": *\([0-9.eE+-]*\).*/\1/p" $corpus/stories.json; }
    val_tokens=$(value val_tokens)  # whole stories, so that the floor is exact
    floor=(--floor "$(value val_nats_per_token)")
else
    name=$(basename "${text%.*}" | tr -c 'A-Za-z0-9._\n-' _)-text
    # a tenth of the text, at least two batches
    val_tokens=$((bytes / 10 < 4200 ? 4200 : bytes / 10 < val_tokens ? bytes / 10 : val_tokens))
fi

# the stamp says of which file and by which rules the tokens were made
stamp=$corpus/$name.prepared
made_of="$text $(stat -L -c '%s %Y' "$text") bytes blank-line $val_tokens"
if [ "$(cat "$stamp" 2>/dev/null)" != "$made_of" ]; then
    rm -f "$stamp" "$corpus/${name}"_{train,val}*.bin
    build/prepare_data --tokenizer bytes --split-documents blank-line --val-tokens $val_tokens \
        --out $corpus --name "$name" "$text"
    echo "$made_of" >"$stamp"
fi

run=runs/$name
mkdir -p "$run"
build/train_gpt2 -i "$corpus/${name}_train*.bin" -j "$corpus/${name}_val*.bin" \
    -e custom:layers=3,heads=2,channels=96,max_seq_len=256 -o "$run" -b 8 -t 256 -x 3500 -l 0.005 -u 100 \
    -k cosine -q 0.05 -v 250 -m 16 -s 1750 -g 600 -n 1750 --tokenizer bytes --device auto "$@"
dev/plot.sh "${floor[@]}" "$run"
