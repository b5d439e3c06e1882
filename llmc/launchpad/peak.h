// Measured peak rates of a device, to which benchmarks, MFU and train_gpt2 --profile refer; and the means to
// measure on a device: warm-up, sustained times, medians.
#pragma once
#include <functional>
#include <vector>

#include "llmc/launchpad/launchpad.h"
#include "shaders/args.h"

struct Peaks {
    double copy_rate = 0;  // bytes per second, read + write, between arrays larger than every cache
    double fma_rate = 0;   // flops per second of fp32 fused multiply-adds
    // Flops per second of cooperative matrices in registers, with bf16 or fp16 operands; 0: the device has
    // none.
    double bf16_matrix_rate = 0, fp16_matrix_rate = 0;
};

// Takes about a second. Allocates 2 GiB on the device, or a quarter of its memory if that is less (32 MiB on
// a software device).
Peaks measure_peaks(LaunchPad& pad);

// Summary of a measurement that was repeated `count` times.
struct Spread {
    double median = 0, least = 0, most = 0;
    int count = 0;
};

Spread spread_of(std::vector<double> values);  // of at least one value

// Measures up to `repeats` times and stops early once `seconds` have passed. Measures at least once.
Spread repeated(int repeats, double seconds, const std::function<double()>& measure);

// --- single peaks: GPU timestamps of launches of about 10 ms, after a warm-up with the same kernel ---

// Flops per second of fp32 fused multiply-adds in registers.
Spread fma_rate(LaunchPad& pad, int repeats);

// A cooperative-matrix load. Each subgroup keeps down x across accumulator fragments (4, 8 or 16 in total) in
// registers.
struct MatrixLoad {
    int subgroups = 4;  // in a workgroup
    int down = 4, across = 4;
    int iterations = 256;          // of 16 multiply-adds of fragments; divided by 16 on a software device
    int operands = POWERS_OF_TWO;  // values of the operands (shaders/args.h); others may be slower
};
// Flops per second of cooperative matrices in registers, with operands of type Real (bf16, fp16). The count
// is 0 if the device has no cooperative matrices of that type.
template <class Real>
Spread matrix_rate(LaunchPad& pad, const MatrixLoad& load, int repeats);

// A kernel whose workgroups are independent; work per second of all workgroups that run together.
struct GroupLoad {
    uint32_t block;  // invocations in a workgroup
    double work;     // flops or bytes of one iteration of one workgroup
    int iterations;
    std::function<void(uint64_t groups, const PeakFmaArgs& args)> dispatch;
};
Spread group_rate(LaunchPad& pad, const GroupLoad& load, int repeats);

// Copy bandwidth, read + write, in bytes per second: repeatedly copies one array of `bytes` (a multiple of
// 16) to another. If `overlapped`, copies do not wait for each other, so small arrays measure the caches and
// not the dispatch overhead.
Spread copy_rate(LaunchPad& pad, size_t bytes, bool overlapped, int repeats);

// The size of an array that exceeds every cache: 1 GiB, or an eighth of the device's memory if that is less;
// 16 MiB on a software device.
size_t large_copy_bytes(const LaunchPad& pad);

// --- time ---

// Sustained seconds per launch: doubles the number of launches until a batch takes `at_least` seconds, which
// is long compared with the resolution of the clock.
double seconds_per_launch(LaunchPad& pad, const std::function<void()>& launch, double at_least = 0.02);

// Launches until `seconds` have passed. An idle GPU runs at a fraction of its clock rate, and takes a while
// to raise it.
void warm_up(LaunchPad& pad, const std::function<void()>& launch, double seconds);
// Warms up with fused multiply-adds. Does nothing on a software device.
void raise_clock(LaunchPad& pad, double seconds = 0.5);
