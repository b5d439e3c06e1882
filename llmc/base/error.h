// The library's only exception type, and fail(), which throws it. Library code never exits: main() catches
// Error, prints its one line (what is wrong, where, what to do) and exits with a non-zero status.
#pragma once
#include <cstdarg>
#include <stdexcept>
#include <string>
#include <string_view>

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Throws Error with a printf-formatted message: one line without a full stop or newline at the end. Text
// from files may be part of it: the message is made printable.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Formats like printf, into a std::string.
std::string format_string(const char* format, ...) __attribute__((format(printf, 1, 2)));

// The same with a list of arguments.
std::string format_list(const char* format, va_list list) __attribute__((format(printf, 1, 0)));

// The text on one line that no terminal interprets: control characters, invisible characters that change the
// order of others, and bytes that are not UTF-8 become escapes such as \n and \x1b.
std::string printable(std::string_view text);

// The same for text of several lines: newlines and tabs stay.
std::string printable_lines(std::string_view text);

// A path as a word of a POSIX shell, in quotes where it needs them: for commands to copy.
std::string shell_word(const std::string& path);

inline constexpr char out_of_memory_message[] =
    "out of memory: use a smaller batch or model, or raise the limit if there is one (ulimit -v, -d)";

// What main() prints of an exception: an Error's message, or a sentence for an exception of the standard
// library, such as one for too little memory or a path that the system refuses.
std::string message_for(const std::exception& error);
