// Command lines: options of a table, and words, in any order.
#pragma once
#include <string>
#include <vector>

#include "llmc/options/option_table.h"

// Sets the options of a table from arguments (without the program's name): --name value, --name=value,
// -x value, -xvalue, flags, --no-name. A list may be given several times, everything else once. Throws Error,
// one line, for the first wrong argument.
void parse_arguments(OptionTable& table, const std::vector<std::string>& arguments);

// What --help prints.
std::string help_text(const OptionTable& table);
