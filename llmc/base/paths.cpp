// Paths, and the files that patterns name: matching_paths() of file.h, too.
#include "llmc/base/paths.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "llmc/base/file.h"
#include "llmc/base/system_files.h"

namespace fs = std::filesystem;

size_t server_length(const std::string& path) {
    if (fs::path::preferred_separator != '\\' || path.find_first_not_of(separators) != 2) return 0;
    const size_t share = path.find_first_of(separators, 2);
    return share == path.npos ? path.size()
                              : std::min(path.size(), path.find_first_of(separators, share + 1));
}

std::string generic_text(const fs::path& path) {
    std::string text = path.generic_string();
    if (server_length(path.string())) text.insert(0, 1, '/');
    return text;
}

// Without the "..", which leads out of what a link leads to, not out of the link's folder.
static fs::path without_climbs(const fs::path& path) {
    fs::path done;
    for (const fs::path& part : path) {
        std::error_code error;
        if (part == "." && !done.empty()) continue;
        if (part == ".." && fs::is_symlink(done, error))
            if (const fs::path target = fs::canonical(done, error); !error) done = target;
        done = part == ".." ? (done / part).lexically_normal() : done / part;
        if (part == ".." && !done.has_filename()) done = done.parent_path();  // a/b/.. is "a/"
    }
    return done;
}

fs::path normal_path(const fs::path& path) {
    const std::string text = path.string();
    const size_t server = server_length(text);
    if (!server) return without_climbs(path).lexically_normal();
    return text.substr(0, server) + fs::path(text.substr(server)).lexically_normal().string();
}

fs::path absolute_path(const fs::path& path) {
    return normal_path(server_length(path.string()) ? path : fs::absolute(path));
}

fs::path joined_path(const fs::path& folder, const fs::path& path) {
    return server_length(path.string()) ? path : folder / path;
}

// --- patterns ---

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
    const size_t server = server_length(pattern);  // which is no folder of another one
    expand(pattern.substr(0, server), pattern.substr(server), paths);
    std::sort(paths.begin(), paths.end());
    return paths;
}

std::vector<std::string> expand_patterns(const std::vector<std::string>& patterns) {
    std::vector<std::string> all;
    for (const std::string& pattern : patterns) {
        const std::vector<std::string> matching = matching_paths(pattern);
        if (matching.empty()) all.push_back(pattern);
        all.insert(all.end(), matching.begin(), matching.end());
    }
    return all;
}
