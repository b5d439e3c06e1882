// Numbered versions of a layer's GPU kernels. Tests and benchmarks iterate over the tables of these, and over
// the versions that no program launches: dev/vulkan/baselines/.
#pragma once
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/launchpad/launchpad.h"

// Params is the struct that the layer function takes. Config is what a version can be launched with: a block
// size (invocations in a workgroup), or for GEMMs the shape of a tile.
template <class Params, class Config = int>
struct KernelVersion {
    const char* name;         // a shader's, or what several shaders' names begin with
    const char* description;  // the difference from the version before, in one line
    void (*launch)(LaunchPad& pad, const Params& params, Config config);
    std::vector<Config> configs;  // the default first
};

// The explicit instantiations of a layer function whose struct is Params<Real>, and of the table of its GPU
// versions.
#define INSTANTIATE_LAYER(function, Params, Real)            \
    template void function(LaunchPad*, const Params<Real>&); \
    template std::vector<KernelVersion<Params<Real>>> function##_versions();

// How tests and benchmarks print a config: "block:256".
inline std::string config_name(int block_size) { return format_string("block:%d", block_size); }

// "gelu_forward2/bf16/block:256"
template <class Real, class Config>
std::string version_name(const char* version, Config config) {
    return format_string("%s/%s/%s", version, real_name<Real>(), config_name(config).c_str());
}

// The device can run a version with this block size, or tile.
inline bool fits_device(const LaunchPad& pad, int block_size) {
    return uint32_t(block_size) <= pad.limits().max_block;
}
template <class Config>
bool fits_device(const LaunchPad&, Config) {
    return true;
}

// Throws Error: the self-test found all versions of a layer wrong.
[[noreturn]] void fail_without_version(const LaunchPad& pad, const std::string& preferred);

template <class Params, class Config>
struct ChosenVersion {
    KernelVersion<Params, Config> version;
    Config config;
};

// A version with a config; where the self-test found that wrong on this device, another config of it, or a
// version before it in the table.
template <class Real, class Params, class Config>
ChosenVersion<Params, Config> choose_version(LaunchPad& pad,
                                             const std::vector<KernelVersion<Params, Config>>& versions,
                                             std::string_view preferred, Config config) {
    bool reached = false;
    for (size_t i = versions.size(); i-- > 0;) {
        std::vector<Config> configs = versions[i].configs;
        if (versions[i].name == preferred) {
            reached = true;
            configs.insert(configs.begin(), config);
        }
        for (const Config c : configs) {
            const std::string name = version_name<Real>(versions[i].name, c);
            if (!reached || !fits_device(pad, c) || pad.is_wrong(name)) continue;
            pad.take(name);
            return {versions[i], c};
        }
    }
    fail_without_version(pad, std::string(preferred));
}

// Launches the version that choose_version() returns.
template <class Real, class Params, class Config>
void launch(LaunchPad& pad, const Params& p, const std::vector<KernelVersion<Params, Config>>& versions,
            std::string_view preferred, std::type_identity_t<Config> config) {
    const auto chosen = choose_version<Real>(pad, versions, preferred, config);
    chosen.version.launch(pad, p, chosen.config);
}
