#include "llmc/run/log_lines.h"

#include <charconv>

std::string lines_before(std::string_view text, std::string_view before, char after, int step) {
    std::string kept;
    for (size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
        const std::string_view line = text.substr(0, end + 1);
        if (!line.starts_with(before)) continue;
        int number;
        const auto [next, error] = std::from_chars(line.data() + before.size(), line.data() + end, number);
        if (error == std::errc() && *next == after && number >= 0 && number < step) kept += line;
    }
    return kept;
}
