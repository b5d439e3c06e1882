// A signal handler that takes down the first signal: see stop_signal.h.
#include "llmc/stop_signal.h"

#include <csignal>
#include <initializer_list>

static volatile std::sig_atomic_t received = 0;

static void take_down(int number) {
    received = number;
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
}

void catch_stop_signals() {
    for (int number : {SIGINT, SIGTERM}) {
        struct sigaction action = {}, before = {};
        sigaction(number, nullptr, &before);
        if (before.sa_handler == SIG_IGN) continue;  // as under nohup
        action.sa_handler = take_down;
        action.sa_flags = SA_RESTART;  // reads and writes under way are not disturbed
        sigaction(number, &action, nullptr);
    }
}

int stop_signal() { return received; }
