// Numbered versions of a layer's GPU kernels. Tests and benchmarks iterate over the tables of these, and over
// the versions that no program launches: dev/vulkan/baselines/.
#pragma once
#include <string>
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
