// LaunchPad's dry runs, and the measurements of a device: numbers by name, in a file beside the pipeline
// cache (device_cache.h).
#include <algorithm>
#include <filesystem>
#include <numeric>
#include <utility>

#include "llmc/launchpad/device_cache.h"
#include "llmc/launchpad/internal.h"

void read_measured(LaunchPadState& s) {
    if (s.cache_file.empty()) return;
    s.measured_file = std::filesystem::path(s.cache_file).replace_extension(".measured").generic_string();
    s.measured = measured_in(read_cache_file(s.measured_file));
}

std::optional<int> LaunchPad::tuned(const std::string& name, std::function<int()> measure) const {
    if (name.find_first_of(" \n") != std::string::npos) fail("tuned: '%s' has a space", name.c_str());
    if (const auto found = state->measured.find(name); found != state->measured.end()) return found->second;
    if (state->dry && measure) state->dry->untuned.try_emplace(name, std::move(measure));
    return std::nullopt;
}

size_t Requirements::scratch_bytes() const {
    return std::accumulate(std::begin(scratch), std::end(scratch), size_t(0));
}

void Requirements::add(const Requirements& other) {
    for (int i = 0; i < NUM_SCRATCH_SLOTS; i++) scratch[i] = std::max(scratch[i], other.scratch[i]);
    untuned.insert(other.untuned.begin(), other.untuned.end());
    kernels.insert(other.kernels.begin(), other.kernels.end());
}

Requirements LaunchPad::dry_run(const std::function<void()>& commands) {
    LaunchPadState& s = *state;
    if ((s.dry && !s.options.compile_only) || s.recording || s.open_groups)
        fail("dry_run: a dry run, a recording or a group is open");
    Requirements needed, *const outer = s.dry;
    commit(false);
    s.dry = &needed;
    try {
        commands();
    } catch (...) {
        s.dry = outer;
        throw;
    }
    s.dry = outer;
    return needed;
}

void LaunchPad::prepare(const Requirements& needed) {
    LaunchPadState& s = *state;
    if (s.dry) return s.dry->add(needed);
    for (int i = 0; i < NUM_SCRATCH_SLOTS; i++) scratch(Scratch(i), needed.scratch[i] / sizeof(float));
    for (const auto& [name, measure] : needed.untuned) s.untuned.try_emplace(name, measure);
    for (const auto& [key, constants] : needed.kernels)
        if (!s.pipelines.contains(key)) s.uncompiled.try_emplace(key, constants);
}

void LaunchPad::tune(const ProgressCallback& progress) {
    LaunchPadState& s = *state;
    const int total = int(s.untuned.size());
    for (int done = 0; !s.untuned.empty(); done++) {
        if (progress) progress(done, total);
        const auto next = s.untuned.extract(s.untuned.begin());
        try {
            s.measured[next.key()] = next.mapped()();
            if (!s.measured_file.empty()) write_cache_file(s.measured_file, measured_file(s.measured));
        } catch (const OutOfDeviceMemory&) {
            // the choice stays the usual one
        }
    }
    if (total) take_kernel_times();  // the measurements do not count
}
