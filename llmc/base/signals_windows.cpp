// Windows' console events as signals: see signals.h.
#include <windows.h>

#include <atomic>
#include <csignal>
#include <cstdio>

#include "llmc/base/signals.h"

// The window is closed, or the user logs off or shuts down. No signal has this number.
static constexpr int closing = 1;
static std::atomic<int> stop_received = 0;

// Windows calls this in a thread of its own. It ends the program when this returns after the window was
// closed, and five seconds later at the latest.
static BOOL WINAPI record_event(DWORD event) {
    const bool again = stop_received != 0;
    const bool by_key = event == CTRL_C_EVENT || event == CTRL_BREAK_EVENT;
    if (again && by_key) return FALSE;  // ends the program
    if (!again)
        stop_received = event == CTRL_C_EVENT ? SIGINT : event == CTRL_BREAK_EVENT ? SIGBREAK : closing;
    if (!by_key) Sleep(INFINITE);
    return TRUE;
}

static void record_signal(int number) {
    if (!stop_received) stop_received = number;
}

static const char *announcer = nullptr, *announced_when = "";

static BOOL WINAPI end_with_line(DWORD event) {
    const int number = event == CTRL_C_EVENT ? SIGINT : event == CTRL_BREAK_EVENT ? SIGBREAK : closing;
    fprintf(stderr, "%s: stopped by %s%s\n", announcer, signal_name(number), announced_when);
    return FALSE;  // ends the program
}

void announce_interrupts(const char* program, const char* when) {
    announcer = program;
    announced_when = when;
    SetConsoleCtrlHandler(end_with_line, FALSE);
    SetConsoleCtrlHandler(end_with_line, TRUE);
}

void release_stop_signals() {
    if (stop_received) return;
    SetConsoleCtrlHandler(record_event, FALSE);
    if (announcer) announce_interrupts(announcer, announced_when);
}

void catch_stop_signals() {
    SetConsoleCtrlHandler(end_with_line, FALSE);
    SetConsoleCtrlHandler(record_event, TRUE);
    std::signal(SIGTERM, record_signal);  // of raise(): Windows has no other
}

void catch_interrupts() { catch_stop_signals(); }

int stop_signal() { return stop_received; }

void catch_save_signal() {}  // Windows has no signal for it

bool take_save_request() { return false; }

void take_signals_from_input(void (*)(int)) {}  // of a job: Windows has none

void pass_signals_on(int64_t) {}

const char* signal_name(int number) {
    if (number == SIGINT) return "Ctrl-C";
    if (number == SIGBREAK) return "Ctrl-Break";
    if (number == SIGTERM) return "SIGTERM";
    return number == closing ? "closing its window" : "a signal";
}
