// The sections of the report. Their measurements refer to `run`, which must outlive them.
#pragma once
#include <string>
#include <vector>

#include "dev/report/section.h"

// Arithmetic in registers, tensor cores, memory bandwidth by size, shared memory, transfers between host and
// device, launch overhead; and the same of the CPU. Benchmarks, --profile and MFU refer to measure_peaks()
// (peak.h), which runs the same kernels in one configuration each. This section tries several.
Section peak_section(ReportRun& run);

// What the tests choose. Empty lists: the defaults.
struct SweepOptions {
    std::vector<double> sizes = {};
    std::vector<std::string> precisions = {};
    double wrong_at = 0;  // a size at which an element of the GPU's result is changed; 0: none
};

// Square GEMMs, and memory-bound operations, at many sizes, by the layer functions that training calls: speed
// on the CPU and on the GPU, the difference between their results, and the size from which the GPU is faster.
Section matmul_section(ReportRun& run, const SweepOptions& options = {});
Section elementwise_section(ReportRun& run, const SweepOptions& options = {});

struct TrainingCase {
    std::string model;  // as train_gpt2's -e
    int B, T;
    std::string precision;
};

// Training as train_gpt2 does it, on generated tokens and from random weights: tokens per second, MFU, memory
// and power. Without cases: those that suit the device.
Section training_section(ReportRun& run, std::vector<TrainingCase> cases = {});
