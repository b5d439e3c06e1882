// A central barrier with a futex for long waits: see node_barrier.h.
#include "llmc/distributed/node_barrier.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>
#include <thread>
#include <utility>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

#include "llmc/base/clock.h"

// All processes but the last to arrive wait for `generation` to change. Counters that different processes
// write often have cache lines of their own.
struct NodeState {
    alignas(64) std::atomic<uint32_t> arrived;
    alignas(64) std::atomic<uint32_t> generation;
    std::atomic<uint32_t> blocked;  // processes that the last one must wake
    std::atomic<uint32_t> aborting;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free, "the barrier works between processes");

static constexpr double SPIN_SECONDS = 5e-6;    // without a system call
static constexpr double BLOCK_SECONDS = 50e-6;  // time after which the barrier blocks, and length of a sleep
static constexpr double YIELD_SECONDS = 5e-3;   // time after which polls sleep

static void relax_core() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

void Polling::pause() {
    const double time = now();
    if (begin == 0) begin = time;
    if (time < begin + SPIN_SECONDS)
        relax_core();
    else if (time < begin + YIELD_SECONDS)
        std::this_thread::yield();
    else
        std::this_thread::sleep_for(std::chrono::duration<double>(BLOCK_SECONDS));
}

size_t NodeBarrier::bytes() { return sizeof(NodeState); }

NodeBarrier::NodeBarrier(SharedMemory shared, int ranks_of_node)
    : memory(std::move(shared)),
      state(*reinterpret_cast<NodeState*>(memory.address)),
      local_size(ranks_of_node) {}

bool NodeBarrier::claim_abort() { return state.aborting.exchange(1) == 0; }

// Blocks until the word changes from `value`, someone wakes the process, or some time has passed.
static void block_while(std::atomic<uint32_t>& word, uint32_t value) {
#ifdef __linux__
    const timespec timeout = {1, 0};
    syscall(SYS_futex, &word, FUTEX_WAIT, value, &timeout, nullptr, 0);
#else
    if (word == value) std::this_thread::sleep_for(std::chrono::duration<double>(BLOCK_SECONDS));
#endif
}

static void wake_all(std::atomic<uint32_t>& word) {
#ifdef __linux__
    syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
#else
    (void)word;
#endif
}

void NodeBarrier::wait() {
    const uint32_t generation = state.generation;
    if (state.arrived.fetch_add(1) + 1 == uint32_t(local_size)) {
        state.arrived = 0;
        state.generation = generation + 1;
        if (state.blocked > 0) wake_all(state.generation);
        return;
    }
    const double begin = now();
    for (double time = begin; time < begin + BLOCK_SECONDS; time = now()) {
        if (state.generation != generation) return;
        time < begin + SPIN_SECONDS ? relax_core() : std::this_thread::yield();
    }
    // Both sides are sequentially consistent: either the last process sees this one blocked, or this one sees
    // the new generation.
    state.blocked++;
    while (state.generation == generation) block_while(state.generation, generation);
    state.blocked--;
}
