#!/usr/bin/env bash
# Trains on machines that this one emulates, and checks that they train like one. Each machine is a network
# namespace with its own host name and /dev/shm; a bridge joins them, each link shaped to the given rate.
# Prints the losses and the time of a step. Needs root, iproute2 and Open MPI; without namespaces it says so
# and exits with status 77.
#     dev/two_machines.sh [-b BUILD] [-m MACHINES] [-n PROCESSES_EACH] RATE... [-- OPTIONS OF train_gpt2]
#     dev/two_machines.sh 1gbit 10gbit -- -i 'data/my_train*.bin' -e d6 -b 4 -t 256 -x 10 --device cpu
# Without -i, it trains a small model on tokens that it makes. With -f FAULT, it instead breaks the last
# machine while it trains, and prints how long the others take to end, and their last line:
#     kill    kill -9 of a rank, whose launcher leaves the others alone
#     stop    kill -STOP of a rank: a GPU or a disk that hangs
#     down    its link goes down: a machine without power
set -euo pipefail
cd "$(dirname "$0")/.."
build=build machines=2 processes=1 fault= rates=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case $1 in
        -b) build=$2; shift ;;
        -m) machines=$2; shift ;;
        -n) processes=$2; shift ;;
        -f) fault=$2; shift ;;
        *) rates+=("$1") ;;
    esac
    shift
done
shift || true
skip() { echo "two_machines.sh: skipped, since $1" >&2; exit 77; }
[ ${#rates[@]} -gt 0 ] || { echo "two_machines.sh: name a rate, such as 1gbit" >&2; exit 1; }
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
for tool in ip tc unshare mpirun; do command -v $tool >/dev/null || skip "$tool is missing"; done
mpirun --version | grep -q "Open MPI" || skip "mpirun is not Open MPI's"
options=("$@")
folder=$(mktemp -d)
program=$(realpath "$build")/train_gpt2
name=llmc$$

cleanup() {
    for i in $(seq 0 "$machines"); do
        { ip netns pids "$name.$i" | xargs -r kill -KILL; ip netns del "$name.$i"; } 2>/dev/null || true
    done
    rm -rf "$folder"
}
trap cleanup EXIT

# Namespace 0 has the bridge, namespace I the address 10.99.0.I.
for i in $(seq 0 "$machines"); do
    ip netns add "$name.$i" 2>"$folder/error" || skip "$(cat "$folder/error")"
    ip -n "$name.$i" link set lo up
done
ip -n "$name.0" link add bridge type bridge || skip "there are no network bridges"
ip -n "$name.0" link set bridge up
for i in $(seq "$machines"); do
    ip link add port netns "$name.$i" type veth peer name "to$i" netns "$name.0"
    ip -n "$name.$i" addr add "10.99.0.$i/24" dev port
    ip -n "$name.$i" link set port up
    ip -n "$name.0" link set "to$i" master bridge up
done

# Runs a command on machine $1.
cat >"$folder/on" <<ON
#!/usr/bin/env bash
machine=\${1##*.}
shift
exec ip netns exec $name.\$machine unshare --uts --mount bash -c \
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
        -b 2 --device cpu --threads 1 "${options[@]}")
    [[ -n $fault || " ${options[*]} " == *" -x "* ]] || options+=(-x 10)
fi

# Prints the losses of main.log.
losses() { sed -n 's/^s:\([0-9]*\) trl:\([0-9.]*\).*/\1 \2/p' "$1/main.log"; }

# Starts a job of so many processes on each of so many machines: start OUTPUT MACHINES PER_MACHINE
start() {
    local hosts=10.99.0.1:$3
    for i in $(seq 2 "$2"); do hosts+=,10.99.0.$i:$3; done
    "$folder/on" .1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun \
        ${fault:+--enable-recovery} -np $(($2 * $3)) --host "$hosts" --oversubscribe --bind-to none \
        --mca plm_rsh_agent "$folder/on" --mca btl tcp,self --mca btl_tcp_if_include 10.99.0.0/24 \
        --mca oob_tcp_if_include 10.99.0.0/24 \
        "$program" -s 0 -v 0 "$(printf '%q ' "${options[@]}")" -o "$folder/$1" >"$folder/$1.log" 2>&1
}

# Trains, and prints the time of a fast step (the first quartile) and tokens/s.
train() {
    start "$@" || { tail -5 "$folder/$1.log" >&2; exit 1; }
    grep -aoE '[0-9.]+ ms' "$folder/$1.log" | sort -n |
        awk '{t[NR] = $1} END {printf "%s ms a step, ", t[int(NR / 4) + 1]}'
    grep -aoE '[0-9]+ tok/s|[0-9.]+ tokens/s' "$folder/$1.log" | tail -1
}

shape() {
    for i in $(seq "$machines"); do
        ip netns exec "$name.$i" tc qdisc replace dev port root tbf rate "$1" burst 1mb latency 50ms
    done
}

# The processes of a machine's ranks.
ranks_of() {
    ip netns pids "$name.$1" | xargs -r ps -o pid=,args= -p | awk -v p="$program" '$2 == p {print $1}'
}

# Breaks the last machine once the job has trained some steps.
break_machine() {
    shape "${rates[0]}"
    options+=(-x 1000000)
    start fault "$machines" "$processes" 2>/dev/null &
    local job=$! rank0 victim begin
    disown
    until [ "$(losses "$folder/fault" 2>/dev/null | wc -l)" -ge 3 ]; do
        kill -0 $job 2>/dev/null || { tail -5 "$folder/fault.log" >&2; exit 1; }
        sleep 0.2
    done
    rank0=$(ranks_of 1 | head -1) victim=$(ranks_of "$machines" | tail -1) begin=$SECONDS
    case $fault in
        kill) kill -KILL "$victim" ;;
        stop) kill -STOP "$victim" ;;
        down) ip -n "$name.$machines" link set port down ;;
        *) echo "two_machines.sh: -f $fault: kill, stop or down" >&2; exit 1 ;;
    esac
    while kill -0 "$rank0" 2>/dev/null && [ $((SECONDS - begin)) -lt 150 ]; do sleep 0.2; done
    ! kill -0 "$rank0" 2>/dev/null || { echo "$fault: rank 0 still runs" >&2; exit 1; }
    echo "$fault: rank 0 ended after $((SECONDS - begin)) s"
    local lines='^waiting for|^the job waited|^rank .* (has died|has not answered)'
    grep -aE "$lines" "$folder/fault.log" || { tail -5 "$folder/fault.log" >&2; exit 1; }
}

if [ -n "$fault" ]; then
    break_machine
    exit
fi

echo "one machine, $((machines * processes)) processes: $(train one 1 $((machines * processes)))"
for rate in "${rates[@]}"; do
    shape "$rate"
    sent() { ip netns exec "$name.1" cat /sys/class/net/port/statistics/tx_bytes; }
    before=$(sent)
    speed=$(train "$rate" "$machines" "$processes")
    megabytes=$((($(sent) - before) / 1000000))
    echo "$machines machines, $processes each, $rate: $speed, $megabytes MB sent by each"
    paste <(losses "$folder/one") <(losses "$folder/$rate") |
        awk '{d = $2 - $4; if (d < 0) d = -d; if (d > m) m = d}
            END {print "  largest difference of a loss: " m + 0; exit !(NR && m < 0.01)}'
done
