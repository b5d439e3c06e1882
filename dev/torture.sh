#!/usr/bin/env bash
# Injects every fault that the tests know into small runs, where CI takes a sample: errors of the Vulkan
# driver and of the operating system at every call, kills at every system call, and memory that runs out at
# every allocation. Runs the tests of all promises of docs/reliability.md, two at a time, and prints the
# counts; the status is 1 if a test fails.
#     dev/torture.sh [BUILD [TEST...]]     a TEST is a program, such as file_fault_test
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(cd "${1:-build}" && pwd)
shift || true
promises() { sed -n '/^## Promises/,/^The tests/s/^| .* | \(.*\) |$/\1/p' docs/reliability.md; }
[ $# -gt 0 ] || set -- vulkan_faults_test memory_fault_test file_fault_test error_test time_to_loss_test \
    process_test $(promises | grep -oE '`[a-z_]+`' | tr -d '`' | grep -v ^windows | sed 's/$/_test/' | sort -u)
export VULKAN_FAULTS=all FILE_FAULT_ALL=1 MEMORY_FAULT_ALL=1 NOT_FINITE_ALL=1 DISTRIBUTED_KILLS=30
export OMP_WAIT_POLICY=passive GALLIVM_PERF=nopt
[ ! -w /dev/shm ] || export TMPDIR=${TMPDIR:-/dev/shm}  # flushing so many checkpoints to a disk takes hours
logs=$build/torture
mkdir -p "$logs"

torture() {
    local start=$SECONDS status=0
    "$build/$1" >"$logs/$1.log" 2>&1 || status=$?
    grep -E 'faults|killed|calls|runs|values' "$logs/$1.log" | sed "s/^/torture: $1: /" || true
    if [ $status -ne 0 ]; then
        grep -E 'Failure|FAILED' "$logs/$1.log" | head -20 || tail -5 "$logs/$1.log"
        echo "torture: $1: FAILED, see $logs/$1.log"
        return 1
    fi
    echo "torture: $1: no failures, $((SECONDS - start)) s"
}

export -f torture
export build logs
failed=0
printf '%s\n' "$@" | awk '!seen[$0]++' | xargs -P 2 -I{} bash -c 'torture {}' || failed=1
echo "torture: $([ $failed -eq 0 ] && echo "no test program failed" || echo FAILED), $SECONDS s"
exit $failed
