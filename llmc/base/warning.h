// Warnings: something went wrong that does not end the program.
#pragma once
#include <string>

// Prints "warning: " and the message as one line to standard error.
void warn(const std::string& message);
