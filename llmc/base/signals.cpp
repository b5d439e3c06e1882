// A signal handler that records the first signal: see signals.h.
#include "llmc/base/signals.h"

#include <csignal>
#include <initializer_list>

static volatile std::sig_atomic_t received = 0;

static void record(int number) {
    received = number;
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
}

void catch_stop_signals() {
    for (int number : {SIGINT, SIGTERM}) {
        struct sigaction action = {}, before = {};
        sigaction(number, nullptr, &before);
        if (before.sa_handler == SIG_IGN) continue;  // stay ignored, as under nohup
        action.sa_handler = record;
        action.sa_flags = SA_RESTART;  // do not interrupt pending reads and writes
        sigaction(number, &action, nullptr);
    }
}

int stop_signal() { return received; }
