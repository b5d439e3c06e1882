// Signal handlers that only record what came: see signals.h.
#include "llmc/base/signals.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include "llmc/base/clock.h"

static volatile std::sig_atomic_t stop_received = 0, save_received = 0;

// What waits to be written is written to /dev/null, since the system restarts the call.
static void drop_output(int stream) {
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null < 0) return;
    dup2(null, stream);
    close(null);
}

// After a stop signal, a timer calls this every 0.1 s.
static void drop_stalled_output(int) {
    static volatile std::sig_atomic_t stalled[] = {0, 0, 0};
    const int error = errno;
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
        pollfd output = {stream, POLLOUT, 0};
        stalled[stream] = poll(&output, 1, 0) == 0 ? stalled[stream] + 1 : 0;
        if (stalled[stream] == 5) drop_output(stream);
    }
    errno = error;
}

static void watch_output() {
    struct sigaction action = {};
    action.sa_handler = drop_stalled_output;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, nullptr);
    const itimerval timer = {{0, 100000}, {0, 100000}};
    setitimer(ITIMER_REAL, &timer, nullptr);
}

static void (*volatile at_second)(int) = [](int number) {
    std::signal(number, SIG_DFL);
    raise(number);
};

// timeout and some launchers signal a program and its group: the second signal comes at once, and asks for
// nothing else.
static void record_stop(int number) {
    static volatile double first = 0;
    const double same_request = 0.2, time = now();
    if (!stop_received) watch_output();
    if (!stop_received) stop_received = number;
    if (number != SIGINT && number != SIGTERM) return;  // a closing terminal sends several of the others
    if (first == 0) first = time;
    if (time - first > same_request) at_second(number);
}

void at_second_stop_signal(void (*action)(int)) { at_second = action; }

static void record_save(int) { save_received = 1; }

static void handle(int number, void (*handler)(int), int more_flags = 0) {
    struct sigaction action = {}, before = {};
    sigaction(number, nullptr, &before);
    if (before.sa_handler == SIG_IGN) return;
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART | more_flags;  // do not interrupt pending reads and writes
    sigaction(number, &action, nullptr);
}

static const int interrupts[] = {SIGINT, SIGTERM, SIGHUP, SIGXCPU};

static const char *announcer = nullptr, *announced_when = "";

static void end_with_line(int number) {
    const char* const words[] = {isatty(STDERR_FILENO) ? "\n" : "",
                                 announcer,
                                 ": stopped by ",
                                 signal_name(number),
                                 announced_when,
                                 "\n"};
    watch_output();
    for (const char* word : words)
        if (write(STDERR_FILENO, word, strlen(word)) < 0) break;
    std::signal(number, SIG_DFL);  // std::signal() may have put this handler back without its flags
    raise(number);
}

void announce_interrupts(const char* program, const char* when) {
    announcer = program;
    announced_when = when;
    for (int number : interrupts) handle(number, end_with_line, SA_RESETHAND | SA_NODEFER);
}

void release_stop_signals() {
    if (stop_received) return;
    for (int number : {SIGUSR2, SIGPIPE}) handle(number, SIG_DFL);
    for (int number : interrupts) handle(number, SIG_DFL);
    if (announcer) announce_interrupts(announcer, announced_when);
}

void catch_interrupts() {
    for (int number : interrupts) handle(number, record_stop);
}

void catch_stop_signals() {
    catch_interrupts();
    for (int number : {SIGUSR2, SIGPIPE}) handle(number, record_stop);
}

int stop_signal() { return stop_received; }

void catch_save_signal() { handle(SIGUSR1, record_save); }

bool take_save_request() {
    const bool asked = save_received;
    if (asked) save_received = 0;
    return asked;
}

// Whether the signal would end this process.
static bool is_deadly(int number) {
    struct sigaction action = {};
    sigaction(number, nullptr, &action);
    return action.sa_handler == SIG_DFL || action.sa_handler == end_with_line;
}

void take_signals_from_input(void (*end)(int)) {
    const int input = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0), null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
    close(null);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);  // the main thread gets them
    std::thread([input, end] {
        char number = 1;
        const auto reads = [&] {
            ssize_t count;
            while ((count = read(input, &number, 1)) < 0 && errno == EINTR) {
            }
            return count == 1;
        };
        if (!reads() || number != 0) return;  // another launcher's input
        // The end of the input says nothing: a launcher that ends the job also closes it. Nobody signals the
        // launcher, since that of Open MPI 4 crashes if a signal comes then.
        // A signal that this process has already is not a second one.
        while (reads())
            if (is_deadly(number))
                end(number);
            else if (number == SIGUSR1 || number != stop_received)
                kill(getpid(), number);
    }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void pass_signals_on(int64_t process) {
    static bool has_passed = false;
    // the process may have the signal already, and another of its kind would end it at once
    if (stop_signal() && !std::exchange(has_passed, true)) kill(pid_t(process), SIGUSR2);
    if (take_save_request()) kill(pid_t(process), SIGUSR1);
}

const char* signal_name(int number) {
    static const std::pair<int, const char*> names[] = {{SIGINT, "SIGINT"},   {SIGTERM, "SIGTERM"},
                                                        {SIGHUP, "SIGHUP"},   {SIGXCPU, "SIGXCPU"},
                                                        {SIGUSR2, "SIGUSR2"}, {SIGPIPE, "SIGPIPE"}};
    for (const auto& [of, name] : names)
        if (of == number) return name;
    return "a signal";
}
