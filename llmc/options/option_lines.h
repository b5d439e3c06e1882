// Files of options, a part of TOML: one line NAME = VALUE for each option, empty lines, and comments after #.
// A value is a number or word, a text in '...' or "..." without escapes, or a list [VALUE, VALUE, ...].
#pragma once
#include <string>
#include <string_view>
#include <vector>

struct OptionLine {
    int number;  // of the line, from 1
    std::string name;
    std::vector<std::string> values;  // one or more
};

// Throws Error, which names the file and the line, if a line is anything else or sets an option again.
std::vector<OptionLine> parse_option_lines(std::string_view text, const std::string& path);
