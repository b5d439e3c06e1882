// What a device does at most, measured on it: the yardstick of benchmarks, of MFU and of train_gpt2
// --profile; and what measuring on a device takes: warm-up, sustained times, medians.
#pragma once
#include <vector>

#include "llmc/launchpad.h"
#include "shaders/args.h"

struct Peaks {
    double copy_rate = 0;  // bytes per second, read + write, between arrays larger than every cache
    double fma_rate = 0;   // flops per second of fp32 multiply-adds
    // flops per second of products of bf16 or fp16 fragments in registers; 0: no matrix cores for that type
    double bf16_matrix_rate = 0, fp16_matrix_rate = 0;
};

// Takes about a second, and 2 GiB of the device's memory, or a quarter if that is less (32 MiB on a software
// device).
Peaks measure_peaks(LaunchPad& pad);

// Values of a measurement that was made `count` times.
struct Spread {
    double median = 0, least = 0, most = 0;
    int count = 0;
};

Spread spread_of(std::vector<double> values);  // at least one

// Measures `repeats` times, but no more once `seconds` have passed; at least once.
Spread repeated(int repeats, double seconds, const std::function<double()>& measure);

// --- single peaks: GPU timestamps of launches of some 10 ms, after a warm-up with the same kernel ---

// Flops per second of fp32 multiply-adds in registers.
Spread fma_rate(LaunchPad& pad, int repeats);

// How a subgroup multiplies fragments: down x across sums (4, 8 or 16 of them) stay in its registers.
struct MatrixLoad {
    int subgroups = 4;  // in a workgroup
    int down = 4, across = 4;
    int rounds = 256;             // of 16 products each; a sixteenth of them on a software device
    int factors = POWERS_OF_TWO;  // of shaders/args.h; others are slower on some devices
};
// Flops per second of products of fragments of T (bf16, fp16) in registers; a count of 0: no matrix cores for
// T.
template <class T>
Spread matrix_rate(LaunchPad& pad, const MatrixLoad& load, int repeats);

// Bytes per second that workgroups read from shared memory, on the whole device.
Spread shared_rate(LaunchPad& pad, int repeats);

// Bytes per second, read + write, of copying one array of `bytes` (a multiple of 16) to another, again and
// again. overlapped: copies need not wait for the one before, so that small arrays show the caches, not the
// launches.
Spread copy_rate(LaunchPad& pad, size_t bytes, bool overlapped, int repeats);

// Of one array, past every cache: 1 GiB, or an eighth of the device's memory if that is less; 16 MiB on a
// software device.
size_t large_copy_bytes(const LaunchPad& pad);

// --- time ---

// Seconds per launch, sustained: repeats double until a batch takes `at_least` seconds, enough to trust the
// clock.
double seconds_per_launch(LaunchPad& pad, const std::function<void()>& launch, double at_least = 0.02);

// An idle GPU runs at a fraction of its clock and takes a while to rise: launches until `seconds` have
// passed.
void warm_up(LaunchPad& pad, const std::function<void()>& launch, double seconds);
void raise_clock(LaunchPad& pad, double seconds = 0.5);  // multiply-adds; nothing on a software device
