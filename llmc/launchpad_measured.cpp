// LaunchPad's notes of what was measured on a device: numbers by name, in a file beside the pipeline cache
// (device_cache.h).
#include <filesystem>

#include "llmc/device_cache.h"
#include "llmc/file.h"
#include "llmc/launchpad_internal.h"

void read_measured(LaunchPadState& s) {
    if (s.cache_file.empty()) return;
    s.measured_file = std::filesystem::path(s.cache_file).replace_extension(".measured").string();
    s.measured = measured_in(read_cache_file(s.measured_file));
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
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(s.measured_file).parent_path(), ignored);
    try {
        write_whole_file(s.measured_file, {measured_file(s.measured)});
    } catch (const Error&) {
        // as the pipeline cache: what cannot be written is measured again at the next start
    }
}
