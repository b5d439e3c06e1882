// A central barrier with a futex for long waits: see node_barrier.h.
#include "llmc/distributed/node_barrier.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <thread>
#include <utility>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

#include "llmc/base/clock.h"
#include "llmc/base/error.h"

// All processes but the last to arrive wait for `generation` to change. Counters that different processes
// write often have cache lines of their own.
struct NodeState {
    alignas(64) std::atomic<uint32_t> arrived;
    alignas(64) std::atomic<uint32_t> generation;
    std::atomic<uint32_t> blocked;  // processes that the last one must wake; too high after one was killed
    std::atomic<uint32_t> aborting;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free, "the barrier works between processes");

static constexpr double SPIN_SECONDS = 5e-6;    // without a system call
static constexpr double BLOCK_SECONDS = 50e-6;  // time after which the barrier blocks, and length of a sleep
static constexpr double YIELD_SECONDS = 5e-3;   // time after which polls sleep
static constexpr double CHECK_SECONDS = 0.05;

static void relax_core() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

bool Polling::pause() {
    const double time = now();
    if (begin == 0) begin = checked = time;
    if (time < begin + SPIN_SECONDS)
        relax_core();
    else if (time < begin + YIELD_SECONDS)
        std::this_thread::yield();
    else
        std::this_thread::sleep_for(std::chrono::duration<double>(BLOCK_SECONDS));
    if (time < checked + CHECK_SECONDS) return false;
    checked = time;
    return true;
}

size_t NodeBarrier::bytes() { return sizeof(NodeState); }

static struct flock lock_of(int local_rank) {
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = local_rank;
    lock.l_len = 1;
    return lock;
}

NodeBarrier::NodeBarrier(SharedMemory shared, int my_local_rank, int ranks_of_node)
    : memory(std::move(shared)),
      state(*reinterpret_cast<NodeState*>(memory.address)),
      local_rank(my_local_rank),
      local_size(ranks_of_node) {
    struct flock lock = lock_of(local_rank);
    if (fcntl(memory.file, F_SETLK, &lock) != 0) fail("cannot lock shared memory: %s", strerror(errno));
}

// A lock, unlike a process id, works across containers and is gone before the launcher collects the process.
int NodeBarrier::find_dead() const {
    for (int i = 0; i < local_size; i++) {
        if (i == local_rank) continue;
        struct flock lock = lock_of(i);
        if (fcntl(memory.file, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK) return i;
    }
    return -1;
}

bool NodeBarrier::claim_abort() { return state.aborting.exchange(1) == 0; }

// Blocks until the word changes from `value`, someone wakes the process, or some time has passed.
static void block_while(std::atomic<uint32_t>& word, uint32_t value) {
#ifdef __linux__
    const timespec timeout = {0, long(CHECK_SECONDS * 1e9)};
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

int NodeBarrier::wait() {
    const uint32_t generation = state.generation;
    if (state.arrived.fetch_add(1) + 1 == uint32_t(local_size)) {
        state.arrived = 0;
        state.generation = generation + 1;
        if (state.blocked > 0) wake_all(state.generation);
        return -1;
    }
    const double begin = now();
    for (double time = begin; time < begin + BLOCK_SECONDS; time = now()) {
        if (state.generation != generation) return -1;
        time < begin + SPIN_SECONDS ? relax_core() : std::this_thread::yield();
    }
    // Both sides are sequentially consistent: either the last process sees this one blocked, or this one sees
    // the new generation.
    state.blocked++;
    int dead = -1;
    while (dead < 0) {
        block_while(state.generation, generation);
        if (state.generation != generation) break;
        dead = find_dead();
    }
    state.blocked--;
    return state.generation == generation ? dead : -1;  // one that ended after the barrier is no loss
}
