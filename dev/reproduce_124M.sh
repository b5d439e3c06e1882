#!/bin/bash
# Reproduces GPT-2 124M on 10 billion tokens of FineWeb, with the settings of llm.c's run_gpt2_124M.sh: downloads what is
# missing, then trains; given again after a stop or a crash, it goes on from the newest checkpoint. Run as:
#   [SHARDS=100] [DATA=data] [BUILD=build] dev/reproduce_124M.sh [options of train_gpt2, which come last and so win, e.g. -b 16]
# Results are in runs/gpt2_124M, unless -o says otherwise.
set -euo pipefail
cd "$(dirname "$0")/.."
data=${DATA:-data} shards=${SHARDS:-100}
trainer=${BUILD:-build}/train_gpt2
[[ $shards =~ ^[1-9][0-9]*$ ]] || { echo "reproduce_124M.sh: SHARDS: a number from 1 to 1028, not '$shards'" >&2; exit 1; }
[ -x "$trainer" ] || { echo "reproduce_124M.sh: no $trainer: run 'make build' first" >&2; exit 1; }

# each download ends with the file that is asked for here; without network a run can go on
[ -f "$data/fineweb/fineweb_train_$(printf %06d "$shards").bin" ] || data/download.sh fineweb "$shards" "$data/fineweb"
[ -f "$data/starter/gpt2_124M_debug_state.bin" ] || data/download.sh starter "$data/starter"

# 524,288 tokens a step, however many of them fit into memory at once (-b)
exec "$trainer" -i "$data/fineweb/fineweb_train_*.bin" -j "$data/fineweb/fineweb_val_*.bin" \
    --tokenizer "$data/starter/gpt2_tokenizer.bin" --hellaswag-file "$data/starter/hellaswag_val.bin" \
    -e d12 --precision bf16 -b 64 -t 1024 -d 524288 -r 0 -c 0.1 -l 0.0006 -q 0 -u 700 \
    -v 250 -s 20000 -g 144 -h 1 -o runs/gpt2_124M -n 5000 -y 1 "$@"
