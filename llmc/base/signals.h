// Signals that a long run handles between two micro-batches. None of them is caught where it was ignored
// when the program started, as SIGHUP is under nohup. Windows has Ctrl-C, Ctrl-Break and closing the window
// instead.
//
// No call fails because of a signal: it is restarted. What must not wait any longer for a pipe, a terminal or
// the other end of a FIFO looks for stop_signal() while it waits: see system_files.h. Standard output and
// standard error that accept nothing for half a second after a stop signal become /dev/null; what the first
// thread writes to them goes there.
#pragma once
#include <cstdint>

// From now on, SIGINT, SIGTERM, SIGHUP and SIGXCPU end the program with a line that says so: "PROGRAM:
// stopped by SIGINT" and `when`.
void announce_interrupts(const char* program, const char* when = "");

// From now on, SIGINT, SIGTERM, SIGHUP, SIGXCPU (CPU time used up), SIGUSR2 (schedulers send it before they
// kill a job) and SIGPIPE (nobody reads the output any more) ask the run to stop cleanly. After SIGINT or
// SIGTERM, a second one of these two kills the program, unless it comes at once.
void catch_stop_signals();

// Nothing more is caught, and interrupts are announced again, unless such a signal has come.
void release_stop_signals();

// What that second one does instead, in a signal handler. Not on Windows.
void at_second_stop_signal(void (*action)(int number));

// The same for SIGINT, SIGTERM, SIGHUP and SIGXCPU alone.
void catch_interrupts();

// The number of the first such signal, or 0.
int stop_signal();

// From now on, SIGUSR1, which schedulers send before they stop a job, asks the run to save.
void catch_save_signal();

// Whether SIGUSR1 came since the last call.
bool take_save_request();

// In one process of a job that run_instead() (process.h) started: from now on, it gets the signals that come
// through standard input. Instead of those that nothing catches, another thread calls end(), which ends the
// job.
void take_signals_from_input(void (*end)(int number));

// Passes the first stop signal on to another process, and each SIGUSR1.
void pass_signals_on(int64_t process);

// Such as "SIGTERM"; "a signal" for one that is not named above.
const char* signal_name(int number);
