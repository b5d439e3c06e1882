// Options that train_gpt2 and smaller programs have in common.
#pragma once
#include "llmc/data/preparation.h"
#include "llmc/layers/sampler.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

// --simd, or the environment variable LLMC_SIMD. It takes effect while the command line is parsed, and sets
// the variable for programs that this one starts.
CLI::Option* add_simd_option(CLI::App& app);

// --tensor-cores and --no-tensor-cores, which set the environment variable LAUNCHPAD_TENSOR_CORES, for this
// program and for those that it starts. Default: tensor cores except those of faulty drivers
// (launchpad/device_features.h).
CLI::Option* add_tensor_core_option(CLI::App& app);

// How text is read.
void add_text_options(CLI::App& app, TextOptions& text);

void add_sampler_options(CLI::App& app, SamplerOptions& sampler);
