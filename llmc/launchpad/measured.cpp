// LaunchPad's dry runs, and the measurements of a device: numbers by name, in a file beside the pipeline
// cache (device_cache.h).
#include <algorithm>
#include <filesystem>
#include <numeric>
#include <utility>

#include "llmc/base/checksum.h"
#include "llmc/base/paths.h"
#include "llmc/launchpad/device_cache.h"
#include "llmc/launchpad/internal.h"
#include "llmc/launchpad/kernel_version.h"
#include "llmc/launchpad/peak.h"
#include "llmc/launchpad/shaders.h"

static std::string measured_beside(const std::string& cache_file) {
    return generic_text(std::filesystem::path(cache_file).replace_extension(".measured"));
}

void read_measured(LaunchPadState& s) {
    if (s.cache_file.empty()) return;
    s.measured_file = measured_beside(s.cache_file);
    s.measured = measured_in(read_cache_file(s.measured_file));
}

static void write_measured(const LaunchPadState& s) {
    if (!s.measured_file.empty()) write_cache_file(s.measured_file, measured_file(s.measured));
}

std::optional<int> LaunchPad::tuned(const std::string& name, const Tuning& tuning) const {
    if (name.find_first_of(" \n") != std::string::npos) fail("tuned: '%s' has a space", name.c_str());
    if (const auto found = state->measured.find(name); found != state->measured.end()) return found->second;
    if (state->dry && tuning.measure) state->dry->untuned.try_emplace(name, tuning);
    return std::nullopt;
}

size_t Requirements::scratch_bytes() const {
    return std::accumulate(std::begin(scratch), std::end(scratch), size_t(0));
}

void Requirements::add(const Requirements& other) {
    for (int i = 0; i < NUM_SCRATCH_SLOTS; i++) scratch[i] = std::max(scratch[i], other.scratch[i]);
    untuned.insert(other.untuned.begin(), other.untuned.end());
    kernels.insert(other.kernels.begin(), other.kernels.end());
    versions.insert(other.versions.begin(), other.versions.end());
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
    s.unchecked.insert(needed.versions.begin(), needed.versions.end());
    return needed;
}

void LaunchPad::prepare(const Requirements& needed) {
    LaunchPadState& s = *state;
    if (s.dry) return s.dry->add(needed);
    for (int i = 0; i < NUM_SCRATCH_SLOTS; i++) scratch(Scratch(i), needed.scratch[i] / sizeof(float));
    s.untuned.insert(needed.untuned.begin(), needed.untuned.end());
    for (const auto& [key, constants] : needed.kernels)
        if (!s.pipelines.contains(key)) s.uncompiled.try_emplace(key, constants);
}

Requirements LaunchPad::prepare(const std::function<void()>& commands) {
    Requirements needed = dry_run(commands);
    while (check()) needed = dry_run(commands);  // others take the place of wrong ones
    prepare(needed);
    return needed;
}

void LaunchPad::tune(const ProgressCallback& progress) {
    LaunchPadState& s = *state;
    const int total = int(s.untuned.size());
    const struct Restored {
        bool &spills, before;
        ~Restored() { spills = before; }
    } restored = {s.options.spills, std::exchange(s.options.spills, false)};  // the host's memory is slower
    for (int done = 0; !s.untuned.empty(); done++) {
        if (progress) progress(done, total);
        if (done == 0) {
            for (const auto& [name, tuning] : s.untuned)
                if (tuning.prepare) tuning.prepare();
            compile();
            try {
                raise_clock(*this, 0.3);
            } catch (const OutOfDeviceMemory&) {
            }
        }
        const auto next = s.untuned.extract(s.untuned.begin());
        try {
            s.measured[next.key()] = next.mapped().measure();
            write_measured(s);
        } catch (const OutOfDeviceMemory&) {
            // the choice stays the usual one
        }
    }
    if (total) take_kernel_times();  // the measurements do not count
}

void LaunchPad::skip_tuning() { state->untuned.clear(); }

// --- checked versions of kernels ---

static const char* const check_mark = "right/";

// Results are of one build: the version and the kernels of the program.
static const std::string& check_prefix() {
    static const std::string prefix = [] {
        std::string all;
        for (const EmbeddedShader* shader = embedded_shaders; shader->name; shader++)
            all += checksum_of({reinterpret_cast<const char*>(shader->code),
                                size_t(shader->end - shader->code) * sizeof(uint32_t)});
        return std::string(check_mark) + PROJECT_VERSION "-" + checksum_of(all).substr(0, 8) + "/";
    }();
    return prefix;
}

// One that hangs or crashes is stored without its config.
bool LaunchPad::is_wrong(const std::string& version) const {
    for (const std::string& name : {version, version.substr(0, version.rfind('/'))}) {
        const auto found = state->measured.find(check_prefix() + name);
        if (found != state->measured.end() && !found->second) return true;
    }
    return false;
}

void LaunchPad::take(const std::string& version) {
    if (state->dry) state->dry->versions.insert(version);
}

static std::map<std::string, bool> checks_in(const Measured& measured) {
    std::map<std::string, bool> checks;
    for (const auto& [name, right] : measured)
        if (name.starts_with(check_prefix())) checks[name.substr(check_prefix().size())] = right;
    return checks;
}

std::map<std::string, bool> stored_checks(const Vulkan& vk, VkPhysicalDevice physical) {
    VkPhysicalDeviceProperties2 device = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    vk.vkGetPhysicalDeviceProperties2(physical, &device);
    return checks_in(measured_in(read_cache_file(measured_beside(cache_file_of({}, device.properties)))));
}

void LaunchPad::store_checks(const std::map<std::string, bool>& checks) {
    Measured& measured = state->measured;
    const Measured others = measured_in(read_cache_file(state->measured_file));  // of other processes
    measured.insert(others.begin(), others.end());
    std::erase_if(measured, [](const auto& m) {  // of another build
        return m.first.starts_with(check_mark) && !m.first.starts_with(check_prefix());
    });
    for (const auto& [version, right] : checks) measured[check_prefix() + version] = right;
    write_measured(*state);
}

void LaunchPad::forget_checks() {
    const std::string trial = check_prefix() + MATRIX_TRIAL;  // is no kernel, and its result stays true
    std::erase_if(state->measured,
                  [&](const auto& m) { return m.first.starts_with(check_mark) && m.first != trial; });
    write_measured(*state);
}

void LaunchPad::forget_versions() { state->unchecked.clear(); }

// Returns whether one that was not checked before is wrong.
bool LaunchPad::check() {
    LaunchPadState& s = *state;
    if (!s.options.check_versions || s.dry) return false;
    std::erase_if(s.unchecked, [&](const std::string& version) {
        const bool fits_memory =
            s.has_16bit_storage || version.find("/fp32/") != version.npos;  // else: compile()
        return !fits_memory || s.measured.contains(check_prefix() + version);
    });
    if (s.unchecked.empty()) return false;
    const std::map<std::string, bool> checks =
        s.options.check_versions(*this, std::exchange(s.unchecked, {}));
    store_checks(checks);
    add_stored_pipelines(s);
    return std::any_of(checks.begin(), checks.end(), [](const auto& check) { return !check.second; });
}

void fail_without_version(const LaunchPad& pad, const std::string& preferred) {
    fail(
        "%s: no version of this kernel works on %s (%s --self-test shows what is wrong): update the "
        "driver, or use --device cpu",
        preferred.substr(0, preferred.find_last_not_of("0123456789") + 1).c_str(), pad.device().name.c_str(),
        command_of("train_gpt2").c_str());
}
