// Shared by the programs that measure one operation at many sizes, on the CPU and on the GPU: inputs, timing,
// peaks, and the choice of sizes that fit into the time.
#pragma once
#include <algorithm>
#include <functional>
#include <limits>

#include "dev/report/results.h"
#include "llmc/base/real.h"
#include "llmc/launchpad/peak.h"

// values (n): uniform in [-1, 1], the same for the same seed.
template <class Real>
void fill_random(Real* values, size_t n, uint32_t seed);

// A size is measured if one run of it should take at most `seconds`, at the best rate (flops or bytes per
// second) of the sizes before it. The initial rate is one that every device exceeds on large sizes.
struct TimeBudget {
    double seconds;
    double best_rate = 1e9;
    bool allows(double work) const { return work <= seconds * best_rate; }
    void took(double work, double time) { best_rate = std::max(best_rate, work / time); }
};

// Wall-clock seconds of a call: the minimum of several after a warm-up call, since other programs on the
// machine only make it longer. A warm-up call of more than a second is the result itself.
double cpu_seconds(const std::function<void()>& run, double at_least);

struct GpuSeconds {
    double queued;       // GPU time per launch, in a queue of dependent launches
    double synchronous;  // wall-clock time to launch once, submit and wait
};
// `launch` appends one run. quick: a fifth of the launches.
GpuSeconds gpu_seconds(LaunchPad& pad, const std::function<void()>& launch, bool quick);

// Raises the clock of a GPU that was idle for `idle` seconds: works for half a second, or with `quick` for at
// most twice the idle time, since the clock takes about a second to fall.
void raise_clock_after(LaunchPad& pad, double idle, bool quick);

// The peaks of the CPU (bf16_matrix_rate: its bf16 dot products) and of the GPU. A software device is
// compared with the CPU that it runs on.
struct SweepPeaks {
    Peaks cpu, gpu;
};
SweepPeaks measure_sweep_peaks(LaunchPad* pad, bool quick);
// The peaks of --peaks if complete, so that all sections of a page name the same ones; else measured.
SweepPeaks sweep_peaks(const ReportRun& run);

// The highest rate, in flops per second, that a GEMM with operands of type Real can reach.
template <class Real>
double gemm_peak(const Peaks& peaks);

// A number as a cell: null if it is not finite.
Cell number(double value);
const double NOT_MEASURED = std::numeric_limits<double>::quiet_NaN();
