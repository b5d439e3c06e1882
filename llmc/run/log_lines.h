// The lines of its logs that a resumed run keeps (log.h).
#pragma once
#include <string>
#include <string_view>

// The lines of a log whose step is less than `step`. A line starts with `before`, the step and `after`. Other
// lines are dropped, and so is a last line without a newline, which a crash cut short.
std::string lines_before(std::string_view text, std::string_view before, char after, int step);
