#!/usr/bin/env bash
# Injects every fault that the tests know into small runs, where CI takes a sample: errors of the Vulkan
# driver and of the operating system at every call, kills at every system call, and memory that runs out at
# every allocation. Prints the counts; the status is 1 if a test fails. docs/reliability.md lists the last
# full result.
#     dev/torture.sh [BUILD [TEST...]]     a TEST is one of the names below
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(cd "${1:-build}" && pwd)
shift || true
tests=("$@")
[ ${#tests[@]} -gt 0 ] || tests=(
    vulkan_faults_test file_fault_test fault_kinds_test memory_fault_test divergence_test run_folder_test
    signals_test standard_streams_test distributed_faults_test output_test two_programs_test
    train_options_test foreign_text_test untrusted_folder_test many_digits_test limits_test file_test
    progress_test train_resume_test resume_grid_test run_state_test distributed_test tensorboard_test
    error_test long_loops_test export_test time_to_loss_test process_test)
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

failed=0
for test in "${tests[@]}"; do
    torture "$test" || failed=$((failed + 1))
done
echo "torture: ${#tests[@]} test programs, $failed failed"
exit $((failed > 0))
