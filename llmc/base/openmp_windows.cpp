// The functions of GNU's OpenMP library that compiled code calls, for Windows. The library itself waits at
// each barrier on a semaphore of winpthreads, which takes longer than the step of a small model. Here threads
// spin for a few microseconds, then block on an address, as the library does on Linux. A parallel region
// inside another one, or concurrent with one of another thread, has one thread.
#include <immintrin.h>
#include <omp.h>
#include <windows.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <climits>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

#include "llmc/base/os.h"

void wait_briefly(char**) {}  // wait_while() waits like this

// --- waiting ---

static constexpr int spins = 1000;  // as wait_briefly() sets it on Linux

// Returns once the word has another value.
static void wait_while(std::atomic<uint32_t>& word, uint32_t value) {
    for (int i = 0; i < spins; i++, _mm_pause())
        if (word != value) return;
    while (word == value) WaitOnAddress(&word, &value, sizeof value, INFINITE);
}

static void set_and_wake(std::atomic<uint32_t>& word, uint32_t value) {
    word = value;
    WakeByAddressAll(&word);
}

// --- a team of threads, which serves one parallel region after another ---

// A loop that threads take chunks of. Several may be under way, since no barrier stands between two of them.
struct Loop {
    uint32_t sequence = 0;  // in the region, from 1
    uint32_t users = 0;     // threads that have not ended it
    uint64_t first = 0, step = 0, chunk = 0, iterations = 0, taken = 0;
};

struct Team {
    void (*function)(void*) = nullptr;
    void* data = nullptr;
    uint32_t size = 1;     // threads of the region
    uint32_t started = 1;  // threads that exist
    alignas(64) std::atomic<uint32_t> region = 0;
    alignas(64) std::atomic<uint32_t> working = 0;
    alignas(64) std::atomic<uint32_t> arrived = 0;
    alignas(64) std::atomic<uint32_t> barriers = 0;
    std::atomic_flag loops_locked;
    Loop loops[8];
};
static Team team;
static std::mutex in_region;  // of the thread whose region it is

struct ThisThread {
    int number = 0, threads = 1;
    uint32_t loops = 0;
};
static thread_local ThisThread self;

static void work(int number) {
    self = {number, int(team.size), 0};
    team.function(team.data);
    self = {};
}

static void serve(uint32_t number, uint32_t seen) {
    for (;; seen++) {
        wait_while(team.region, seen);
        if (number < team.size) work(int(number));
        if (team.working.fetch_sub(1) == 1) WakeByAddressAll(&team.working);
    }
}

// --- loops with a dynamic schedule ---

// Held for a few instructions.
struct LoopsLock {
    LoopsLock() {
        while (team.loops_locked.test_and_set()) _mm_pause();
    }
    ~LoopsLock() { team.loops_locked.clear(); }
};

// Begins the thread's next loop; the first thread to come describes it.
static void begin_loop(uint64_t first, uint64_t step, uint64_t chunk, uint64_t iterations) {
    const uint32_t sequence = ++self.loops;
    Loop& loop = team.loops[sequence % std::size(team.loops)];
    for (;; _mm_pause()) {
        const LoopsLock lock;
        if (loop.sequence == sequence) return;
        if (loop.users > 0) continue;  // an earlier one
        loop = {sequence, uint32_t(self.threads), first, step, chunk, iterations, 0};
        return;
    }
}

template <class Integer>
static bool next_chunk(Integer* first, Integer* end) {
    if (self.threads == 1) return false;  // it took all in the beginning
    const LoopsLock lock;
    Loop& loop = team.loops[self.loops % std::size(team.loops)];
    if (loop.taken == loop.iterations) return false;
    const uint64_t count = std::min(loop.chunk, loop.iterations - loop.taken);
    *first = Integer(loop.first + loop.step * loop.taken);
    loop.taken += count;
    *end = Integer(loop.first + loop.step * loop.taken);
    return true;
}

// `step` is modulo 2 to the power of 64 if the loop counts down.
template <class Integer>
static bool first_chunk(bool up, Integer start, Integer stop, uint64_t step, uint64_t chunk, Integer* first,
                        Integer* end) {
    const bool empty = up ? start >= stop : start <= stop;
    if (self.threads == 1) {
        *first = start;
        *end = stop;
        return !empty;
    }
    const uint64_t distance = up ? uint64_t(stop) - uint64_t(start) : uint64_t(start) - uint64_t(stop);
    const uint64_t stride = up ? step : -step;
    begin_loop(uint64_t(start), step, std::max<uint64_t>(chunk, 1), empty ? 0 : (distance - 1) / stride + 1);
    return next_chunk(first, end);
}

static int variable_or(const char* name, int otherwise) {
    const char* wanted = getenv(name);
    const int number = wanted ? atoi(wanted) : 0;
    return number > 0 ? number : otherwise;
}
static int most_threads = variable_or("OMP_NUM_THREADS", omp_get_num_procs());

extern "C" {

void GOMP_parallel(void (*function)(void*), void* data, unsigned wanted, unsigned) {
    const uint32_t size = wanted ? wanted : uint32_t(most_threads);
    std::unique_lock<std::mutex> region(in_region, std::defer_lock);
    if (size == 1 || self.threads > 1 || !region.try_lock()) {
        const ThisThread outer = std::exchange(self, {});
        function(data);
        self = outer;
        return;
    }
    for (; team.started < size; team.started++)
        std::thread(serve, team.started, uint32_t(team.region)).detach();
    team.function = function;
    team.data = data;
    team.size = size;
    for (Loop& loop : team.loops) loop = {};
    team.working = team.started - 1;  // also those that are not part of the region: they must see each one
    set_and_wake(team.region, team.region + 1);
    work(0);
    for (uint32_t left; (left = team.working) > 0;) wait_while(team.working, left);
}

void GOMP_barrier() {
    const uint32_t before = team.barriers;
    if (self.threads == 1) return;
    if (team.arrived.fetch_add(1) + 1 < uint32_t(self.threads)) return wait_while(team.barriers, before);
    team.arrived = 0;
    set_and_wake(team.barriers, before + 1);
}

bool GOMP_loop_nonmonotonic_dynamic_start(long start, long stop, long step, long chunk, long* first,
                                          long* end) {
    return first_chunk(step > 0, start, stop, uint64_t(int64_t(step)), uint64_t(chunk), first, end);
}

bool GOMP_loop_nonmonotonic_dynamic_next(long* first, long* end) { return next_chunk(first, end); }

using Ull = unsigned long long;

bool GOMP_loop_ull_nonmonotonic_dynamic_start(bool up, Ull start, Ull stop, Ull step, Ull chunk, Ull* first,
                                              Ull* end) {
    return first_chunk(up, start, stop, step, chunk, first, end);
}

bool GOMP_loop_ull_nonmonotonic_dynamic_next(Ull* first, Ull* end) { return next_chunk(first, end); }

void GOMP_loop_end_nowait() {
    if (self.threads == 1) return;
    const LoopsLock lock;
    team.loops[self.loops % std::size(team.loops)].users--;
}

// Around the end of a reduction of several variables.
static std::mutex in_atomic;
void GOMP_atomic_start() { in_atomic.lock(); }
void GOMP_atomic_end() { in_atomic.unlock(); }

int omp_get_max_threads() { return most_threads; }
int omp_get_thread_limit() { return variable_or("OMP_THREAD_LIMIT", INT_MAX); }
int omp_get_num_threads() { return self.threads; }
int omp_get_thread_num() { return self.number; }
void omp_set_num_threads(int threads) { most_threads = std::max(threads, 1); }

int omp_get_num_procs() {
    DWORD_PTR process = 0, system = 0;
    GetProcessAffinityMask(GetCurrentProcess(), &process, &system);
    return process ? std::popcount(uint64_t(process)) : int(GetActiveProcessorCount(ALL_PROCESSOR_GROUPS));
}
}
