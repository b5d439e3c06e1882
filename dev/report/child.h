// Running another program, without a shell, for no longer than it may take.
#pragma once
#include <functional>
#include <string>
#include <vector>

struct ChildResult {
    int status = 0;        // exit status; 128 + signal number where a signal ended it
    bool overran = false;  // it was killed for taking too long
    double seconds = 0;
    std::string out, err;  // standard output and error
};

// Runs argv[0] (a path, or a name to be found in PATH) with `input` as its standard input; on_line sees each
// line of its standard error as it comes. After `limit` seconds it is killed. Throws Error where it cannot be
// started, and, with the child killed, where this program got a stop signal (llmc/stop_signal.h).
ChildResult run_child(std::vector<std::string> argv, double limit, const std::string& input = "",
                      const std::function<void(const std::string&)>& on_line = nullptr);
