// What a driver's compiler makes of one kernel, for dev/vulkan/compile_kernels.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "llmc/launchpad/launchpad.h"

// Numbers that the driver does not report are -1.
struct CompiledKernel {
    double seconds = 0;          // that the compiler took
    uint32_t subgroup_size = 0;  // 0: not reported
    std::string error;           // the driver's message; empty: it compiled
    double registers = -1, spills = -1, scratch_bytes = -1, shared_bytes = -1, code_bytes = -1;
    // Occupancy: subgroups that the registers let run at a time on a SIMD unit
    double subgroups_per_unit = -1;
    std::map<std::string, double> statistics;  // all, under the driver's names
};

// Builds one kernel of a RequiredKernels without any cache, and forgets it.
CompiledKernel compile_kernel(LaunchPad& pad, const std::string& key, const std::vector<uint32_t>& constants);

// Fills the named fields from k.statistics, whose names differ by driver.
void name_statistics(CompiledKernel& k);
