// Shared by the files that hold the baselines of the layers.
#pragma once
#include "dev/vulkan/baselines/baselines.h"
#include "llmc/base/ceil_div.h"
#include "llmc/launchpad/shaders.h"
#include "shaders/args.h"

extern const EmbeddedShader baseline_shaders[];

// `baselines`, followed by `versions`.
template <class Params, class Config>
Versions<Params, Config> join(Versions<Params, Config> baselines, const Versions<Params, Config>& versions) {
    add_shaders(baseline_shaders);
    baselines.insert(baselines.end(), versions.begin(), versions.end());
    return baselines;
}
