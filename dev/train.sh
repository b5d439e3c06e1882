#!/bin/bash
# Trains a small byte-level GPT-2 and plots its loss, on the text file TEXT or, by default, on a generated
# corpus whose entropy, the lowest possible loss, is known. Run by `make train`, or as:
#   [TEXT=file.txt] dev/train.sh [options of train_gpt2, which override those below]
#   [TEXT=file.txt] dev/train.sh check      only checks the text, before a build of minutes
# Corpus and tokens are cached in data/corpus/; logs, checkpoints and the plot go to runs/NAME/.
set -euo pipefail
die() { echo "train.sh: $*" >&2; exit 1; }
text=${TEXT:+$(realpath -- "$TEXT")}
cd "$(dirname "$0")/.."
corpus=data/corpus
val_tokens=32768
floor=()
if [[ ${1:-} = --help || ${1:-} = -h ]]; then
    sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' dev/train.sh
    exit
fi

if [ -n "$text" ]; then
    [[ -f $text && -r $text ]] || die "TEXT: $text is not a readable file"
    bytes=$(stat -L -c %s "$text")
    [ "$bytes" -ge 20000 ] || die "TEXT: $text has $bytes bytes; training needs at least 20000"
fi
if [ "${1:-}" = check ]; then exit; fi
mkdir -p $corpus

if [ -z "$text" ]; then
    name=stories
    text=$corpus/stories.txt
    # regenerated after a change of the generator or of this script (size and seed)
    if [[ ! $corpus/stories.json -nt data/make_corpus.cpp || ! $corpus/stories.json -nt dev/train.sh ]]; then
        build/make_corpus --out $text --bytes 8000000 --seed 1 --tokenizer bytes --val-tokens "$val_tokens"
    fi
    value() { sed -n "s/.*\"$1\": *\([0-9.eE+-]*\).*/\1/p" $corpus/stories.json; }
    val_tokens=$(value val_tokens)  # whole stories, so that the entropy is exact
    floor=(--floor "$(value val_nats_per_token)")
else
    name=$(basename -- "$text")
    name=$(echo "${name%.*}" | tr -c 'A-Za-z0-9._\n-' _)-text
    # a tenth of the text, at least two batches
    val_tokens=$((bytes / 10 < 4200 ? 4200 : bytes / 10 < val_tokens ? bytes / 10 : val_tokens))
fi

# the stamp records the file and the options from which the tokens were made
stamp=$corpus/$name.prepared
made_of="$text $(stat -L -c '%s %Y' "$text") bytes blank-line $val_tokens"
if [ "$(cat "$stamp" 2>/dev/null)" != "$made_of" ]; then
    rm -f "$stamp" "$corpus/${name}"_{train,val}*.bin
    build/prepare_data --tokenizer bytes --split-documents blank-line --val-tokens "$val_tokens" \
        --out $corpus --name "$name" "$text"
    echo "$made_of" >"$stamp"
fi

run=runs/$name trains=1 previous=
for argument in "$@"; do
    case $previous in -o | --output) run=$argument ;; esac
    case $argument in
        --output=*) run=${argument#*=} ;;
        -o?*) run=${argument#-o} ;;
        --dry-run | --list-devices) trains= ;;
    esac
    previous=$argument
done
mkdir -p "$run"
build/train_gpt2 -i "$corpus/${name}_train*.bin" -j "$corpus/${name}_val*.bin" \
    -e custom:layers=3,heads=2,channels=96,max_seq_len=256 -o "$run" -b 8 -t 256 -x 3500 -l 0.005 -u 100 \
    -k cosine -q 0.05 -v 250 -m 16 -s 1750 -g 600 -n 1750 --tokenizer bytes --device auto "$@"
if [ -n "$trains" ]; then dev/plot.sh "${floor[@]}" "$run"; fi
