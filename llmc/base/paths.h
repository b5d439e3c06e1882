// Paths for all systems, where std::filesystem has other ones for some.
#pragma once
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

// Length of \\server\share, \\?\C: or \\.\C: at the beginning of a path of Windows; 0: it begins otherwise.
size_t server_length(const std::string& path);
// generic_string(), absolute() and folder / path for all paths of Windows: those of MinGW drop one of the
// separators that \\server\share and \\?\C: begin with, or append such paths. A normal path has neither "."
// nor, but at its beginning, "..", which leads out of what a link leads to; an absolute one is normal.
std::string generic_text(const std::filesystem::path& path);
std::filesystem::path normal_path(const std::filesystem::path& path);
std::filesystem::path absolute_path(const std::filesystem::path& path);
std::filesystem::path joined_path(const std::filesystem::path& folder, const std::filesystem::path& path);

// What the patterns match, for shells that expand none. A pattern that matches nothing stays.
std::vector<std::string> expand_patterns(const std::vector<std::string>& patterns);
