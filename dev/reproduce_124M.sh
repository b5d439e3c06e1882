#!/bin/bash
# Reproduces GPT-2 124M on 10 billion tokens of FineWeb, with the settings of llm.c's run_gpt2_124M.sh.
# Downloads missing files, then trains. Run again after a stop or a crash, it resumes from the newest
# checkpoint. Options of train_gpt2 override those of dev/reproduce_124M.toml. Run as:
#   [SHARDS=100] [DATA=data] [BUILD=build] [NP=1] dev/reproduce_124M.sh [-b 16 or other options of train_gpt2]
# `--optimizer muon -l 3.6e-3 -q 0.1 -u 0` trains with Muon, which was not compared on FineWeb.
# NP=8 trains on 8 GPUs of one machine; MPIRUN ("mpirun") is the launcher and its options.
# Results go to runs/gpt2_124M, unless -o names another folder.
set -euo pipefail
cd "$(dirname "$0")/.."
data=${DATA:-data} shards=${SHARDS:-100} processes=${NP:-1}
trainer=${BUILD:-build}/train_gpt2
die() { echo "reproduce_124M.sh: $*" >&2; exit 1; }
[[ $shards =~ ^[1-9][0-9]*$ ]] || die "SHARDS must be a number from 1 to 1028, not '$shards'"
[[ $processes =~ ^[1-9][0-9]*$ ]] || die "NP must be a number of processes, not '$processes'"
launch=()
if [ "$processes" -gt 1 ]; then
    read -ra launch <<<"${MPIRUN:-mpirun}"
    command -v "${launch[0]}" >/dev/null || die "NP=$processes needs ${launch[0]}: install openmpi-bin"
    launch+=(-np "$processes")
fi
[ -x "$trainer" ] || die "there is no $trainer: run 'make build' first"

# checks the file that each download writes last, so that a run can resume without a network
[ -f "$data/fineweb/fineweb_train_$(printf %06d "$shards").bin" ] ||
    data/download.sh fineweb "$shards" "$data/fineweb"
[ -f "$data/starter/gpt2_124M_debug_state.bin" ] || data/download.sh starter "$data/starter"

exec "${launch[@]}" "$trainer" --config dev/reproduce_124M.toml -y 1 \
    -i "$data/fineweb/fineweb_train_*.bin" -j "$data/fineweb/fineweb_val_*.bin" \
    --tokenizer "$data/starter/gpt2_tokenizer.bin" --hellaswag-file "$data/starter/hellaswag_val.bin" "$@"
