// Times the CPU versions of the layers, as a launchpad times its kernels. Each layer function constructs a
// CpuTimer first, which does nothing unless keep_cpu_times(true) was called. Only one thread calls layers, so
// this is not thread-safe.
#pragma once
#include <string>
#include <vector>

#include "llmc/base/work.h"

void keep_cpu_times(bool on);

// Returns the totals over all calls since the previous take_cpu_times(), longest first. Seconds are wall
// time.
std::vector<KernelTime> take_cpu_times();

struct CpuTimer {
    // Calls with the same name and the same sizes, printed as "256 x 768", share one total.
    CpuTimer(const char* name, Work work, std::initializer_list<int> sizes = {});
    ~CpuTimer();
    CpuTimer(const CpuTimer&) = delete;

   private:
    std::string key;  // empty: times are not kept
    Work done;
    double start;
};
