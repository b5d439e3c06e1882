#include "llmc/run/line_editor.h"

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "llmc/base/os.h"

#if WITH_LIBEDIT
#include <editline/readline.h>

static std::optional<std::string> edit_line(const char* prompt) {
    setlocale(LC_CTYPE, "");  // characters of several bytes
    char* typed = readline(prompt);
    if (!typed) return std::nullopt;
    if (*typed) add_history(typed);
    const std::string line = typed;
    free(typed);
    return line;
}
#else
static std::optional<std::string> edit_line(const char* prompt) {
    fputs(prompt, stdout);
    fflush(stdout);
    std::string line;
    if (!std::getline(std::cin, line)) return std::nullopt;
    return line;
}
#endif

std::optional<std::string> read_typed_line(const char* prompt) {
    if (is_terminal(stdin) && is_terminal(stdout)) {
        const std::optional<std::string> typed = edit_line(prompt);
        if (!typed) putchar('\n');  // the shell's prompt begins on a new line
        return typed;
    }
    std::string line;
    if (!std::getline(std::cin, line)) return std::nullopt;
    if (line.ends_with('\r')) line.pop_back();
    return line;
}
