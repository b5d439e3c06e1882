// matching_paths(): the files that a pattern names.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "llmc/base/file.h"
#include "llmc/base/system_files.h"

// The parts of a path that hold a wildcard.
static int parts_with_wildcards(const std::string& pattern) {
    int parts = 0;
    bool counted = false;
    for (size_t i = 0; i < pattern.size(); i++) {
        if (is_separator(pattern[i]))
            counted = false;
        else if (pattern[i] == '\\')
            i++;
        else if (pattern.compare(i, 3, "[[]") == 0)  // from escaped_pattern() of Windows
            i += 2;
        else if (strchr("*?[", pattern[i]) && !std::exchange(counted, true))
            parts++;
    }
    return parts;
}

// A part of a pattern without wildcards, as the name that it matches.
static std::string unescaped_pattern(const std::string& pattern) {
    std::string name;
    for (size_t i = 0; i < pattern.size(); i++) {
        const bool is_bracket = pattern.compare(i, 3, "[[]") == 0;
        if (pattern[i] == '\\' && i + 1 < pattern.size()) i++;
        name += pattern[i];
        if (is_bracket) i += 2;
    }
    return name;
}

// Appends the paths that consist of `found`, which exists, and what matches the rest of a pattern.
static void expand(const std::string& found, const std::string& rest, std::vector<std::string>& paths) {
    const size_t start = std::min(rest.size(), rest.find_first_not_of(separators));
    const size_t end = std::min(rest.size(), rest.find_first_of(separators, start));
    const std::string before = found + rest.substr(0, start), wanted = rest.substr(start, end - start);
    if (start == rest.size()) return paths.push_back(before);
    if (parts_with_wildcards(wanted) == 0) {
        const std::string path = before + unescaped_pattern(wanted);
        if (file_exists(path)) expand(path, rest.substr(end), paths);
        return;
    }
    if (!before.empty() && !is_folder(before)) return;
    const auto is_hidden = [&](const std::string& name) {  // wildcards stand for no hidden files
        const std::optional<FileStatus> status = get_status(before + name);
        return (name[0] == '.' && wanted[0] != '.') || (status && status->hidden);
    };
    for (const std::string& name : names_in(before.empty() ? "." : before))
        if (matches_pattern(wanted, name) && !is_hidden(name)) expand(before + name, rest.substr(end), paths);
}

std::vector<std::string> matching_paths(const std::string& pattern) {
    if (file_exists(pattern)) return {pattern};
    if (parts_with_wildcards(pattern) > 3)
        fail("%s: at most three parts of a path may have wildcards: more of them search a whole disk",
             pattern.c_str());
    std::vector<std::string> paths;
    expand("", pattern, paths);
    std::sort(paths.begin(), paths.end());
    return paths;
}
