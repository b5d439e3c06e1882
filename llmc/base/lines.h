#pragma once
#include <algorithm>
#include <concepts>
#include <string>
#include <string_view>
#include <vector>

// The lines of a text, without the newlines at their ends.
inline std::vector<std::string> lines_of(std::string_view text) {
    std::vector<std::string> lines;
    for (size_t start = 0, end; start < text.size(); start = end + 1) {
        end = std::min(text.find('\n', start), text.size());
        lines.emplace_back(text.substr(start, end - start));
    }
    return lines;
}

// "1 example", "2 examples".
std::string counted(std::integral auto count, const std::string& noun) {
    return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

inline std::string joined(const std::vector<std::string>& texts, const std::string& between) {
    std::string all;
    for (const std::string& text : texts) all += (&text == &texts[0] ? "" : between) + text;
    return all;
}
