// The kernels of a model, without running them: for LaunchPad::dry_run() on a launchpad with compile_only.
#pragma once
#include "llmc/launchpad/launchpad.h"
#include "llmc/model/model_config.h"

// What training takes with each optimizer and with dropout, samples included.
template <class Real>
void give_default_commands(LaunchPad& pad, const ModelConfig& config, int B, int T);

// All versions of all layers, in all block sizes and tiles that fit the device, with the model's sizes.
template <class Real>
void give_all_versions(LaunchPad& pad, const ModelConfig& config, int B, int T);
