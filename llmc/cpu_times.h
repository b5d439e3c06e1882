// What the CPU versions of the layers took, kept as a launchpad keeps the times of its kernels. A layer puts
// a CpuTimer at its start; that costs nothing until keep_cpu_times(true). Layers are called by one thread.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "llmc/launchpad.h"

void keep_cpu_times(bool on);

// Sums over the calls since the last call of this, the longest first; seconds are wall time.
std::vector<KernelTime> take_cpu_times();

struct CpuTimer {
    // The calls of one name and one list of sizes (printed "256 x 768") are added up.
    CpuTimer(const char* name, Work work, std::initializer_list<int> sizes = {});
    ~CpuTimer();
    CpuTimer(const CpuTimer&) = delete;

   private:
    std::string key;  // empty: times are not kept
    Work done;
    std::chrono::steady_clock::time_point start;
};
