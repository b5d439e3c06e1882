// Runs another program, without a shell and with a time limit; command lines as text.
#pragma once
#include <functional>
#include <string>
#include <vector>

struct ChildResult {
    int status = 0;          // exit status; 128 + signal number if a signal ended it
    bool timed_out = false;  // it was killed at the time limit
    double seconds = 0;
    std::string out, err;  // standard output and error
};

// Runs argv[0] (a path, or a name found in PATH) with `input` as standard input. on_line is called with each
// line of standard error as it arrives. The program is killed after `limit` seconds. Throws Error if it
// cannot be started, or, after killing it, if this program receives a stop signal (llmc/base/signals.h).
ChildResult run_child(std::vector<std::string> argv, double limit, const std::string& input = "",
                      const std::function<void(const std::string&)>& on_line = nullptr);

// A command line, quoted for the shell where necessary, and printable.
std::string command_text(const std::vector<std::string>& words);
