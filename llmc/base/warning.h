// Lines for a person. They may contain text from files, which is escaped here.
#pragma once
#include <cstdio>
#include <string>

// Prints one line, formatted like printf, without the newline at its end: control characters in it become
// escapes (printable() in error.h), so that no name or value acts on a terminal or adds a line.
void print_line(FILE* to, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Prints "warning: " and a message, formatted like printf, as a line to standard error: something went wrong
// that does not end the program.
void warn(const char* format, ...) __attribute__((format(printf, 1, 2)));
