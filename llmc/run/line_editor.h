// Lines that somebody types: on a terminal with a prompt and, if the program is built with libedit, with line
// editing and history. Programs that use it link libedit (CMakeLists.txt).
#pragma once
#include <optional>
#include <string>

// The next line of standard input, without its end; none at the end of the input. The prompt is shown only on
// a terminal.
std::optional<std::string> read_typed_line(const char* prompt);
