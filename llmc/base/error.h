// Messages: the library's only exception type, fail(), which throws it, and lines for a person. Library code
// never exits: main() catches Error, prints its one line (what is wrong, where, what to do) and exits with a
// non-zero status.
#pragma once
#include <cstdio>
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

// Prints one line, formatted like printf, without the newline at its end: what printable() escapes in it,
// which may be text from files, neither acts on a terminal nor adds a line.
void print_line(FILE* to, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Prints "warning: " and a message, formatted like printf, as a line to standard error: something went wrong
// that does not end the program.
void warn(const char* format, ...) __attribute__((format(printf, 1, 2)));

// The text on one line that no terminal interprets: control characters, invisible characters that change the
// order of others, and bytes that are not UTF-8 become escapes such as \n and \x1b.
std::string printable(std::string_view text);

// The same for text of several lines: newlines and tabs stay.
std::string printable_lines(std::string_view text);

// What this program was started as, without folders: start_program() sets it.
extern std::string name_of_program;

// The command that starts a program of this project: as packages install it if this one has such a name.
std::string command_of(const std::string& program);

// What main() prints of an exception: an Error's message, or a sentence for an exception of the standard
// library, such as one for too little memory or a path that the system refuses.
std::string message_for(const std::exception& error);
