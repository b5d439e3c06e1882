// What the sections that measure an operation at many sizes share: timing, peaks, the choice of sizes that
// fit into the time, rows.
#pragma once
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "dev/report/section.h"
#include "llmc/base/real.h"

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

const double NOT_MEASURED = std::numeric_limits<double>::quiet_NaN();

// Seconds at one size, and the differences from the CPU's results; NaN: not measured.
struct SizeTimes {
    double cpu = NOT_MEASURED;
    double queued = NOT_MEASURED;       // GPU time per launch, in a queue of dependent launches
    double synchronous = NOT_MEASURED;  // wall-clock time to launch once, submit and wait
    std::vector<Cell> errors = {};      // the last columns of the table that compares
};

// Sets the GPU's times. `launch` appends one run. quick: a fifth of the launches.
void measure_gpu(SizeTimes& times, LaunchPad& pad, const std::function<void()>& launch, bool quick);

// The peaks of the run: those that the section of peaks measured, so that a page names one value for each
// quantity; else they are measured now.
const MachinePeaks& peaks_of(ReportRun& run);

// The highest rate, in flops per second, that a GEMM with operands of type Real can reach.
template <class Real>
double gemm_peak(const Peaks& peaks);

// One operation in one storage type.
struct Sweep {
    std::string name, table;  // for readers; of the rates
    std::string key;          // in the table that compares: `compared`
    std::string cpu, gpu;     // keys in the table of rates
    std::string compared;
    double seconds_per_unit, work_per_unit;  // of the columns: 1e-3 for ms, 1e12 for TFLOP/s
    TimeBudget cpu_budget, gpu_budget;
    std::function<double(double size)> work;               // flops or bytes
    std::function<double(double size, bool on_gpu)> peak;  // per second; NaN: does not apply
    std::function<bool(double size, bool on_gpu)> fits;    // into the memory
    std::function<SizeTimes(double size, bool on_cpu, bool on_gpu)> measure;
};
void add_sweep(Section& section, ReportRun& run, const Sweep& sweep, const std::vector<double>& sizes);

// The table that compares; its last columns are errors. `unit`: of times.
Table compared_table(const std::string& name, const std::string& title, const std::vector<std::string>& keys,
                     const std::string& unit);

// Times at one size; NaN: not measured.
struct TimePair {
    double size, gpu, cpu;
};

// From which size on the GPU is faster: interpolated, on logarithmic axes, between the last size at which it
// is not and the next one. "170 (GPU slower at 100, faster at 250)". Takes the pairs in any order.
std::string crossover_text(std::vector<TimePair> times);

// The same for each key of a table that compares.
std::string crossovers_text(const Table& compared);
