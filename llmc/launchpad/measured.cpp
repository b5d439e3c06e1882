// LaunchPad's dry runs, and the measurements of a device: numbers by name, in a file beside the pipeline
// cache (device_cache.h).
#include <filesystem>
#include <numeric>

#include "llmc/base/file.h"
#include "llmc/launchpad/device_cache.h"
#include "llmc/launchpad/internal.h"

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
        // best effort: it is measured again at the next start
    }
}

size_t Requirements::scratch_bytes() const {
    return std::accumulate(std::begin(scratch), std::end(scratch), size_t(0));
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

bool LaunchPad::dry_running() const { return state->dry; }

void LaunchPad::note_untuned(const std::string& name, std::function<void()> measure) {
    if (state->dry) state->dry->untuned.try_emplace(name, std::move(measure));
}

void LaunchPad::prepare(const Requirements& needed) {
    LaunchPadState& s = *state;
    for (int i = 0; i < NUM_SCRATCH_SLOTS; i++) scratch(Scratch(i), needed.scratch[i] / sizeof(float));
    for (const auto& [name, measure] : needed.untuned) s.untuned.try_emplace(name, measure);
    for (const auto& [key, constants] : needed.kernels)
        if (!s.pipelines.contains(key)) s.uncompiled.try_emplace(key, constants);
}

int LaunchPad::num_untuned() const { return int(state->untuned.size()); }

void LaunchPad::tune(const ProgressCallback& progress) {
    LaunchPadState& s = *state;
    const int total = num_untuned();
    for (int done = 0; !s.untuned.empty(); done++) {
        if (progress) progress(done, total);
        const auto next = s.untuned.extract(s.untuned.begin());
        try {
            next.mapped()();
        } catch (const OutOfDeviceMemory&) {
            // the choice stays the usual one
        }
    }
    if (total) reset_kernel_times();
}
