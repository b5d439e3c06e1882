// What a resumed run keeps of its logs (log.h).
#pragma once
#include <string>
#include <string_view>

// The lines of a log of steps before `step`: those that begin with `before`, the step and `after`. Lines that
// do not, and a last one without its end, which a crash cut short, go.
std::string lines_before(std::string_view text, std::string_view before, char after, int step);
