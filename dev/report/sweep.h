// What the programs share that run one operation at many sizes, on the CPU and on the GPU: inputs, clocks,
// and how they leave out what would take too long.
#pragma once
#include <algorithm>
#include <functional>
#include <limits>

#include "dev/report/results.h"
#include "llmc/peak.h"
#include "llmc/real.h"

// values (n): even in [-1, 1], the same for the same seed.
template <class T>
void fill_random(T* values, size_t n, uint32_t seed);

// A size is measured where one run of it should take `seconds` at most, by the best rate of the sizes before:
// flops or bytes per second. It begins at what no device stays below, but calls of little work do.
struct TimeBudget {
    double seconds;
    double best_rate = 1e9;
    bool allows(double work) const { return work <= seconds * best_rate; }
    void took(double work, double time) { best_rate = std::max(best_rate, work / time); }
};

// Seconds of a call, by the wall clock: the least of several after one that does not count, since other
// programs on the machine only make it longer; of that one where it takes more than a second.
double cpu_seconds(const std::function<void()>& run, double at_least);

struct GpuSeconds {
    double in_a_row;  // on the GPU, of a launch among many that wait for each other
    double single;    // by the host's clock: to launch, to submit, to wait
};
// `launch` appends one run. quick: a fifth of the launches.
GpuSeconds gpu_seconds(LaunchPad& pad, const std::function<void()>& launch, bool quick);

// Before the GPU's turn, after `idle` seconds without work: half a second of it; with `quick` no more than
// twice the time that it was idle, since its clock takes about a second to fall.
void raise_clock_after(LaunchPad& pad, double idle, bool quick);

// What the CPU does at most, its products of bf16 pairs as bf16_matrix_rate, and what the GPU does; a
// software device is held against the CPU that it runs on.
struct SweepPeaks {
    Peaks cpu, gpu;
};
SweepPeaks measure_sweep_peaks(LaunchPad* pad, bool quick);

// The most flops per second that products of T can reach.
template <class T>
double product_peak(const Peaks& peaks);

// A number as a cell: null where it is not finite.
Cell number(double value);
const double NOT_MEASURED = std::numeric_limits<double>::quiet_NaN();
