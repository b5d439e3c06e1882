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
    const bool types = is_terminal(stdin) && is_terminal(stdout);
    std::string piped;
    std::optional<std::string> line = types                           ? edit_line(prompt)
                                      : std::getline(std::cin, piped) ? std::optional(piped)
                                                                      : std::nullopt;
    if (line && line->ends_with('\r')) line->pop_back();  // Windows' console gives it, too
    // Control-D and Control-Z, where the console makes characters of them
    if (line && (line->starts_with('\x04') || line->starts_with('\x1a'))) line.reset();
    if (types && !line) putchar('\n');  // the shell's prompt begins on a new line
    return line;
}
