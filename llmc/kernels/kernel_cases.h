// The table of the layers that have GPU kernels. A row has a layer's operands, its work, and its versions:
// tests compare every row with the CPU's version, and so does the self-test of a device; benchmarks time it,
// compile_kernels builds it.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "llmc/base/work.h"
#include "llmc/kernels/operands.h"
#include "llmc/launchpad/kernel_version.h"

struct KernelShape {
    int B, T, C, NH;
    int V = 50257, Vp = 50304;
    int layers = 2;                                // of the optimizers and of the norm
    std::vector<std::pair<int, int>> linear = {};  // (C, OC) of linear layers; empty: of a model's layers
    int linear_rows = 0;                           // of linear layers; 0: B * T
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
    // A version with any block size, by its name; none: the layer has no such version.
    std::function<std::optional<KernelRun>(const std::string& name)> with_block = nullptr;
};

// Versions that no program launches: tests and benchmarks add them, dev/vulkan/baselines/.
template <class Version>
std::vector<Version>& added_versions() {
    static std::vector<Version> added;
    return added;
}
template <class Version>
std::vector<Version> with_added(const std::vector<Version>& versions) {
    std::vector<Version> all = added_versions<Version>();
    all.insert(all.end(), versions.begin(), versions.end());
    return all;
}

// What the self-test of a device runs. Kernels differ where sizes are no multiples of their tiles, and where
// a GEMM is so long or has so many rows that it is split.
const std::vector<KernelShape>& self_test_shapes();

// The version of this name, with any config; none: the layer has no such version.
std::optional<KernelRun> find_run(const KernelCase& of, const std::string& name);

// Every layer at these sizes; the types: float, bf16, fp16.
template <class Real>
std::vector<KernelCase> kernel_cases(const KernelShape& shape);

// Runs a version and compares every array with the host's, which has run layer_run. `device` may have been
// another version's. Throws Error for a wrong result.
Difference check_run(const KernelCase& of, const KernelRun& run, Operands& device, const Operands& host);

// Runs what training calls and all versions that fit the device, and compares every array with the CPU's.
// Throws Error, naming the version, for a wrong result. Returns how many ran.
int check_kernels(LaunchPad& pad, const KernelCase& of);
