#!/usr/bin/env bash
# Trains on two machines that this one emulates, and checks that they train like one. Each machine is a
# network namespace with its own host name and /dev/shm; a veth pair joins them, shaped to the given rates.
# Prints the losses and tokens/s. Needs root, iproute2 and Open MPI.
#     dev/two_machines.sh [-b BUILD] [-n PROCESSES_PER_MACHINE] RATE... [-- OPTIONS OF train_gpt2]
#     dev/two_machines.sh 1gbit 10gbit -- -i 'data/my_train*.bin' -e d6 -b 4 -t 256 -x 10 --device cpu
# Without -i, it trains a small model on tokens that it makes.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build processes=1 rates=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case $1 in
        -b) build=$2; shift ;;
        -n) processes=$2; shift ;;
        *) rates+=("$1") ;;
    esac
    shift
done
shift || true
[ ${#rates[@]} -gt 0 ] || { echo "two_machines.sh: name a rate, such as 1gbit" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo "two_machines.sh: network namespaces need root" >&2; exit 1; }
options=("$@")
folder=$(mktemp -d)
program=$(realpath "$build")/train_gpt2
name=llmc$$

cleanup() {
    for i in 1 2; do ip netns del "$name$i" 2>/dev/null || true; done
    rm -rf "$folder"
}
trap cleanup EXIT

# Two namespaces, 10.99.0.1 and 10.99.0.2.
for i in 1 2; do ip netns add "$name$i"; done
ip link add "$name" netns "${name}1" type veth peer name "$name" netns "${name}2"
for i in 1 2; do
    ip -n "$name$i" addr add "10.99.0.$i/24" dev "$name"
    ip -n "$name$i" link set "$name" up
    ip -n "$name$i" link set lo up
done

# Runs a command on machine $1.
cat >"$folder/on" <<ON
#!/usr/bin/env bash
machine=\${1##*.}
shift
exec ip netns exec $name\$machine unshare --uts --mount bash -c \
    'hostname "\$0"; mount -t tmpfs -o size=8g none /dev/shm; exec bash -c "\$1"' machine\$machine "\$*"
ON
chmod +x "$folder/on"

if [[ " ${options[*]} " != *" -i "* ]]; then
    python3 - "$folder/train.bin" <<'PYTHON'
import struct, sys
tokens = [(i * 5 + i // 9 % 3) % 67 for i in range(40000)]
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253))
    file.write(struct.pack(f"<{len(tokens)}H", *tokens))
PYTHON
    options=(-i "$folder/train.bin" -e custom:layers=6,heads=6,channels=384,max_seq_len=128,vocab=67 -t 64
        -b 2 -x 10 --device cpu --threads 1 "${options[@]}")
fi

# Prints the losses of main.log.
losses() { sed -n 's/^s:\([0-9]*\) trl:\([0-9.]*\).*/\1 \2/p' "$1/main.log"; }

# With so many processes on each of so many machines: train OUTPUT MACHINES PER_MACHINE
train() {
    local hosts=10.99.0.1:$3 log=$folder/$1.log
    [ "$2" = 1 ] || hosts+=,10.99.0.2:$3
    if ! "$folder/on" .1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun \
        -np $(($2 * $3)) --host "$hosts" --oversubscribe --bind-to none --mca plm_rsh_agent "$folder/on" \
        --mca btl tcp,self --mca btl_tcp_if_include 10.99.0.0/24 --mca oob_tcp_if_include 10.99.0.0/24 \
        "$program" -s 0 -v 0 "$(printf '%q ' "${options[@]}")" -o "$folder/$1" >"$log" 2>&1; then
        tail -5 "$log" >&2
        exit 1
    fi
    grep -aoE '[0-9]+ tok/s|[0-9.]+ tokens/s' "$log" | tail -1
}

echo "one machine, $((2 * processes)) processes: $(train one 1 $((2 * processes)))"
for rate in "${rates[@]}"; do
    for i in 1 2; do
        ip netns exec "$name$i" tc qdisc replace dev "$name" root tbf rate "$rate" burst 1mb latency 50ms
    done
    sent() { ip netns exec "${name}1" cat "/sys/class/net/$name/statistics/tx_bytes"; }
    before=$(sent)
    speed=$(train "$rate" 2 "$processes")
    echo "two machines, $processes each, $rate: $speed, $((($(sent) - before) / 1000000)) MB sent by each"
    paste <(losses "$folder/one") <(losses "$folder/$rate") |
        awk '{d = $2 - $4; if (d < 0) d = -d; if (d > m) m = d}
            END {print "  largest difference of a loss: " m + 0; exit !(NR && m < 0.01)}'
done
