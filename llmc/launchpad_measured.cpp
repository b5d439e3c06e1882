// LaunchPad's notes of what was measured on a device: lines "name number" in a file beside the pipeline
// cache.
#include <filesystem>
#include <fstream>

#include "llmc/file.h"
#include "llmc/launchpad_internal.h"

void read_measured(LaunchPadState& s) {
    if (s.cache_file.empty()) return;
    s.measured_file = std::filesystem::path(s.cache_file).replace_extension(".measured").string();
    std::ifstream file(s.measured_file);
    std::string name;
    for (int value; file >> name >> value;) s.measured[name] = value;
}

std::optional<int> LaunchPad::measured(const std::string& name) const {
    const auto found = state->measured.find(name);
    if (found == state->measured.end()) return std::nullopt;
    return found->second;
}

void LaunchPad::keep_measured(const std::string& name, int value) {
    LaunchPadState& s = *state;
    s.measured[name] = value;
    if (s.measured_file.empty()) return;
    std::string lines;
    for (const auto& [key, number] : s.measured) lines += format_string("%s %d\n", key.c_str(), number);
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(s.measured_file).parent_path(), ignored);
    try {
        write_whole_file(s.measured_file, {lines});
    } catch (const Error&) {
        // as the pipeline cache: what cannot be written is measured again at the next start
    }
}
