// What a device does at most, measured on it: the yardstick of benchmarks and of train_gpt2 --profile.
#pragma once
#include "llmc/launchpad.h"

struct Peaks {
    double copy_rate = 0;  // bytes per second, read + write, between arrays larger than every cache
    double fma_rate = 0;   // flops per second of fp32 multiply-adds
    // flops per second of products of bf16 or fp16 fragments in registers; 0: no matrix cores for that type
    double bf16_matrix_rate = 0, fp16_matrix_rate = 0;
};

// Takes about a second, and 2 GiB of the device's memory (32 MiB on a software device).
Peaks measure_peaks(LaunchPad& pad);

// Seconds per launch, sustained: repeats double until a batch takes `at_least` seconds, enough to trust the
// clock.
double seconds_per_launch(LaunchPad& pad, const std::function<void()>& launch, double at_least = 0.02);

// An idle GPU runs at a fraction of its clock and takes a while to rise.
void warm_up(LaunchPad& pad, const std::function<void()>& launch, double seconds);
