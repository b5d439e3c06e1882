// The library's only exception type, and fail(), which throws it. Library code never exits: main() catches
// Error, prints its one line (what is wrong, where, what to do) and exits with a non-zero status.
#pragma once
#include <stdexcept>
#include <string>

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Throws Error with a printf-formatted message: one line without a full stop or newline at the end.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Formats like printf, into a std::string.
std::string format_string(const char* format, ...) __attribute__((format(printf, 1, 2)));
