// Programs that the self-test of a device, and tests, start: process_posix.cpp, process_windows.cpp.
#pragma once
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// Runs argv[0], a path or a name in PATH, with this environment in addition, in this program's place. What it
// prints goes through this program's streams, so that an error there is this program's. It has no input:
// standard input brings signals, which a process of the job takes with take_signals_from_input() (signals.h),
// and SIGTERM if this program is killed. Stops and continues with this program. Returns the program's exit
// status, or 128 + the signal's number. Throws std::system_error if it cannot be started, as on Windows.
int run_instead(const std::vector<std::string>& argv,
                const std::vector<std::pair<std::string, std::string>>& environment);

// A program that runs concurrently with this one, whose output is read through pipes.
struct Process {
    // Starts argv[0], a path or a name in PATH, without a shell. Standard input is empty, or a file from its
    // present position. Throws std::system_error if the program cannot be started.
    explicit Process(std::vector<std::string> argv, FILE* input = nullptr);
    ~Process();  // kills the program if it has not ended
    Process(const Process&) = delete;

    // Waits for output for up to so many seconds and appends it. False: the program, and those that it
    // started, have closed both streams.
    bool read(std::string& out, std::string& err, double seconds);

    void kill();  // ends the program at once

    // On Windows, SIGKILL's number ends the program, SIGHUP's arrives as the closing of its window, and any
    // other as Ctrl-Break.
    void send(int signal);

    // Whether the program has ended; then its status is known: its exit status, or 128 + the number of the
    // signal that ended it.
    bool has_ended();
    int status = 0;

    // Waits for the end. Returns the status.
    int wait();

   private:
    struct Internals;
    std::unique_ptr<Internals> internals;
};
