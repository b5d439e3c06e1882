// The table of the layers that have GPU kernels. A row has a layer's operands, its work, and its versions:
// tests compare every row with the CPU's version, benchmarks time it, compile_kernels builds it.
#pragma once
#include <functional>
#include <string>

#include "dev/vulkan/operands.h"
#include "llmc/base/work.h"
#include "llmc/model/model_config.h"

struct KernelShape {
    int B, T, C, NH;
    int V = 50257, Vp = 50304;
    int layers = 2;                                // of the optimizers and of the norm
    std::vector<std::pair<int, int>> linear = {};  // (C, OC) of linear layers; empty: of a model's layers
};

// Allocates the operands and returns what appends the commands of one run.
using Prepare = std::function<std::function<void()>(Operands& operands)>;

// One version with one config.
struct KernelRun {
    std::string name;  // "gelu_forward2/bf16/block:256"
    Prepare prepare;
    std::function<bool(const LaunchPad& pad)> fits = nullptr;  // whether the device can run it
    bool slow = false;                                         // too slow to be timed
};

struct KernelCase {
    std::string layer, shape;  // "gelu_forward", "n:98304"
    Work work;
    KernelRun layer_run;  // the function that training calls; on the host the CPU's version
    std::vector<KernelRun> versions;
};

// Every layer at these sizes; the types: float, bf16, fp16.
template <class Real>
std::vector<KernelCase> kernel_cases(const KernelShape& shape);

// Runs what training calls and all versions that fit the device, and compares every array with the CPU's.
// Throws Error, naming the version, for a wrong result. Returns how many ran.
int check_kernels(LaunchPad& pad, const KernelCase& of);

// --- the kernels of a model, without running them: for LaunchPad::dry_run() on a launchpad with compile_only

// What training takes with each optimizer and with dropout, samples included.
template <class Real>
void give_default_commands(LaunchPad& pad, const ModelConfig& config, int B, int T);

// All versions of all layers, in all block sizes and tiles that fit the device, with the model's sizes.
template <class Real>
void give_all_versions(LaunchPad& pad, const ModelConfig& config, int B, int T);
