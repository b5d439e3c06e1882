// The kernels of a model, without running them: on a launchpad with compile_only, LaunchPad::dry_run() of
// these functions, which append the commands of training, generating and the benchmarks, returns the kernels.
#pragma once
#include "llmc/launchpad/launchpad.h"
#include "llmc/model/model_config.h"

// A batch of B sequences of T tokens.
struct BatchShape {
    int B, T;
};

// What training takes with each optimizer and with dropout, samples included.
template <class Real>
void give_default_commands(LaunchPad& pad, const ModelConfig& config, BatchShape shape);

// All versions of all layers, in all block sizes and tiles that fit the device, with the model's sizes.
template <class Real>
void give_all_versions(LaunchPad& pad, const ModelConfig& config, BatchShape shape);
