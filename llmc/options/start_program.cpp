#include "llmc/options/start_program.h"

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/os.h"
#include "llmc/base/signals.h"
#include "llmc/base/system_files.h"
#include "llmc/distributed/communicator.h"
#include "llmc/kernels/self_test.h"

static bool error_reported = false;

static std::atomic<void*> reserve = nullptr;

// operator new tries again if this returns.
static void free_reserve() {
    void* const held = reserve.exchange(nullptr);
    if (!held) throw std::bad_alloc();
    free(held);
}

void reserve_memory() {
    if (!reserve) reserve = malloc(1 << 20);
    std::set_new_handler(free_reserve);
}

// As --threads allows. With more of them, OpenMP's table of the threads overflows the stack.
static constexpr int most_threads = 1024;

// Not std::thread, which frees memory in the thread: that would reserve address space for an arena. Not
// std::atomic::wait(), which misses calls of notify_all() where GCC 12 has no futexes, as on Windows.
static void* wait_for_all(void* starting) {
    const std::lock_guard all_started(*static_cast<std::mutex*>(starting));
    return nullptr;
}

void use_threads(int count) {
    count = std::min(count, omp_get_thread_limit());  // OMP_THREAD_LIMIT
    omp_set_num_threads(count);
    if (count == 1) return;
    std::vector<pthread_t> threads(size_t(count) +
                                   1);  // two more than OpenMP starts, which needs memory, too
    std::mutex starting;
    size_t started = 0;
    starting.lock();
    while (started < threads.size() &&
           pthread_create(&threads[started], nullptr, wait_for_all, &starting) == 0)
        started++;
    starting.unlock();
    for (size_t i = 0; i < started; i++) pthread_join(threads[i], nullptr);
    if (started < threads.size())
        fail(
            "%d threads could not be started: use fewer (OMP_NUM_THREADS), or raise the limits of memory and "
            "processes (ulimit -v, -d, -u, or pids.max)",
            count);
    std::atomic<int> running = 0;  // compilers leave out a region without effect
#pragma omp parallel
    running++;
}

// OpenMP gives its threads the stack that these variables ask for, in KiB unless a letter says otherwise, and
// without them that of the first thread.
static void check_stack_size() {
    if (stack_limit() < 1 << 20)
        fail("the stack is limited to %llu KiB, and needs 1024: raise the limit (ulimit -s)",
             (unsigned long long)stack_limit() / 1024);
    for (const char* name : {"OMP_STACKSIZE", "GOMP_STACKSIZE", "KMP_STACKSIZE"}) {
        const char* value = getenv(name);
        if (!value) continue;
        char* unit = nullptr;
        const double number = strtod(value, &unit);
        while (isspace(uint8_t(*unit))) unit++;
        const char letter = char(toupper(uint8_t(*unit)));
        const double kib = letter == 'B'   ? number / 1024
                           : letter == 'M' ? number * 1024
                           : letter == 'G' ? number * 1048576
                                           : number;
        if (unit != value && kib < 1024)
            fail("%s=%s: the stacks of threads need at least 1M; leave it out", name, value);
    }
}

int threads_of_environment() {
    const char* text = getenv("OMP_NUM_THREADS");
    if (!text || text[strspn(text, "0123456789, \t")]) return 0;
    return int(std::clamp(strtol(text, nullptr, 10), 0L, long(INT_MAX)));
}

static void check_output() {
    const bool failed_before = ferror(stdout);
    errno = 0;
    const bool flushed = fflush(stdout) == 0 && !failed_before;
    const int error = errno;
    // quotas and NFS report some errors of writing only when the file is closed
    const bool closed = close_written(fileno(stdout));
    if (error_reported || (flushed && closed)) return;  // one line is enough, and the status is 1
    const int number = flushed ? errno : error;
    const std::string reason = number ? std::string(": ") + strerror(number) : "";
    fprintf(stderr, "%s: standard output could not be written%s; what it printed is incomplete\n",
            name_of_program.c_str(), reason.c_str());
    end_at_once(1);
}

int report_error(const char* program, const std::exception& error) {
    fprintf(stderr, "%s: %s\n", program, message_for(error).c_str());
    error_reported = true;
    const auto* stopped = dynamic_cast<const StoppedBySignal*>(&error);
    return stopped ? 128 + stopped->signal : 1;  // as if the signal had ended the program
}

// For exceptions that reach no main(): from a thread in a parallel region, when memory runs out there.
[[noreturn]] static void end_with_one_line() {
    static std::atomic_flag is_ending;
    // memory ran out in several threads: the first one reports it
    while (is_ending.test_and_set()) std::this_thread::sleep_for(std::chrono::hours(1));
    const std::exception_ptr thrown = std::current_exception();
    if (!thrown) abort();
    try {
        std::rethrow_exception(thrown);
    } catch (const std::bad_alloc&) {  // there may be no memory for a std::string either
        fprintf(stderr, "%s: %s\n", name_of_program.c_str(), out_of_memory_message);
    } catch (const std::exception& error) {
        report_error(name_of_program.c_str(), error);
    } catch (...) {
        fprintf(stderr, "%s: an unknown exception\n", name_of_program.c_str());
    }
    fflush(stdout);
    end_at_once(1);
}

void start_program(char** argv) {
    prepare_standard_streams();
    wait_briefly(argv);
    reserve_memory();
    const std::string called = argv[0];
    name_of_program = printable(called.substr(called.find_last_of(separators) + 1));
    std::set_terminate(end_with_one_line);
    setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
    std::atexit(check_output);
    try {
        if (omp_get_max_threads() > most_threads && getenv("OMP_NUM_THREADS"))
            fail("OMP_NUM_THREADS=%s: at most %d threads can be used", getenv("OMP_NUM_THREADS"),
                 most_threads);
        check_stack_size();
        // OpenMP knows OMP_NUM_THREADS, which goes first, and the CPUs that this process may use
        const int allowed = threads_of_environment() ? most_threads : std::min(most_threads, cpu_quota());
        use_threads(std::min(omp_get_max_threads(), allowed));
        begin_self_test(argv);
        // of a job, the launcher's signals to the other processes are no news
        if (!has_launcher()) announce_interrupts(name_of_program.c_str());
    } catch (const std::exception& error) {
        exit(report_error(name_of_program.c_str(), error));
    }
}
