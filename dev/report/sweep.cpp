// Inputs, timing and peaks of the sweeps: see sweep.h.
#include "dev/report/sweep.h"

#include <algorithm>
#include <cmath>

#include "dev/report/peak_cpu.h"
#include "llmc/base/clock.h"

template <class Real>
void fill_random(Real* values, size_t n, uint32_t seed) {
#pragma omp parallel for
    for (size_t i = 0; i < n; i++) {
        uint32_t h = uint32_t(i) * 2654435761u + seed * 0x9e3779b9u + uint32_t(i >> 32);
        h = (h ^ (h >> 16)) * 0x85ebca6bu;
        h = (h ^ (h >> 13)) * 0xc2b2ae35u;
        values[i] = Real(float(int32_t(h ^ (h >> 16))) * 0x1p-31f);
    }
}
template void fill_random(float*, size_t, uint32_t);
template void fill_random(bf16*, size_t, uint32_t);
template void fill_random(fp16*, size_t, uint32_t);

static double timed(const std::function<void()>& run) {
    const double start = now();
    run();
    return now() - start;
}

static double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
}

// 3 to 1000 runs, until they add up to `at_least` seconds.
static std::vector<double> timed_often(const std::function<void()>& run, double at_least) {
    std::vector<double> seconds;
    double sum = 0;
    while (seconds.size() < 3 || (sum < at_least && seconds.size() < 1000)) {
        seconds.push_back(timed(run));
        sum += seconds.back();
    }
    return seconds;
}

double cpu_seconds(const std::function<void()>& run, double at_least) {
    const double first = timed(run);
    if (first > 1) return first;
    const std::vector<double> seconds = timed_often(run, at_least);
    return *std::min_element(seconds.begin(), seconds.end());
}

void raise_clock_after(LaunchPad& pad, double idle, bool quick) {
    raise_clock(pad, quick ? std::min(0.5, 2 * idle) : 0.5);
}

GpuSeconds gpu_seconds(LaunchPad& pad, const std::function<void()>& launch, bool quick) {
    // The clock falls while the GPU waits for the CPU: on an H200 within a second.
    static double last_used = 0;
    const double at_least = quick ? 0.02 : 0.1;
    const auto synchronous = [&] {
        launch();
        pad.commit(true);
    };
    synchronous();  // compiles the kernel
    const double first = timed(synchronous);
    if (first > 1) return {pad.gpu_seconds(launch), first};
    if (const double idle = now() - last_used; idle > 0.1) raise_clock_after(pad, idle, quick);
    if (pad.device().type != DeviceType::software) warm_up(pad, launch, 0.05);
    std::vector<double> batches(5);
    for (double& seconds : batches) seconds = seconds_per_launch(pad, launch, at_least / 5);
    const GpuSeconds found = {median(batches), median(timed_often(synchronous, at_least / 2))};
    last_used = now();
    return found;
}

// A software device has the peaks of the CPU that it runs on.
static SweepPeaks compared_with_cpu(SweepPeaks peaks) {
    peaks.gpu.copy_rate = std::max(peaks.gpu.copy_rate, peaks.cpu.copy_rate);
    peaks.gpu.fma_rate = std::max(peaks.gpu.fma_rate, peaks.cpu.fma_rate);
    return peaks;
}

SweepPeaks measure_sweep_peaks(LaunchPad* pad, bool quick) {
    const double seconds = quick ? 0.1 : 0.3;
    SweepPeaks peaks;
    peaks.cpu.copy_rate = cpu_memory_rate();
    peaks.cpu.fma_rate = cpu_fma_rate(seconds);
    peaks.cpu.bf16_matrix_rate = cpu_bf16_rate(seconds);
    if (!pad) return peaks;
    peaks.gpu = measure_peaks(*pad);
    return pad->device().type == DeviceType::software ? compared_with_cpu(peaks) : peaks;
}

// The rate in the row of a table of `peak`; 0: there is none, or it is null.
static double rate_of(const ReportPart& part, const char* table, const char* where, const char* what) {
    for (const Table& t : part.tables)
        for (const std::vector<Cell>& row : t.rows)
            if (t.name == table && row.size() > 2 && row[0] == Cell(where) && row[1] == Cell(what))
                return row[2].is_number() ? row[2].number() : 0;
    return 0;
}

SweepPeaks sweep_peaks(const ReportRun& run) {
    if (run.options.peaks.empty()) return measure_sweep_peaks(run.pad.get(), run.options.quick);
    const ReportPart part = read_report_part(run.options.peaks);
    const auto flops = [&](const char* where, const char* what) {
        return 1e12 * rate_of(part, "arithmetic", where, what);
    };
    const auto bytes = [&](const char* where, const char* what) {
        return 1e9 * rate_of(part, "bandwidth", where, what);
    };
    SweepPeaks peaks = {.cpu = {.copy_rate = bytes("CPU", "in place (read + write)"),
                                .fma_rate = flops("CPU", "fp32 FMA"),
                                .bf16_matrix_rate = flops("CPU", "bf16 dot product")},
                        .gpu = {.copy_rate = bytes("GPU", "copy (read + write)"),
                                .fma_rate = flops("GPU", "fp32 FMA"),
                                .bf16_matrix_rate = flops("GPU", "bf16 cooperative matrices"),
                                .fp16_matrix_rate = flops("GPU", "fp16 cooperative matrices")}};
    const bool complete = peaks.cpu.copy_rate > 0 && peaks.cpu.fma_rate > 0 &&
                          (!run.pad || (peaks.gpu.copy_rate > 0 && peaks.gpu.fma_rate > 0));
    if (!complete) return measure_sweep_peaks(run.pad.get(), run.options.quick);
    return run.pad && run.software() ? compared_with_cpu(peaks) : peaks;
}

template <class Real>
double gemm_peak(const Peaks& peaks) {
    if constexpr (std::is_same_v<Real, bf16>) return std::max(peaks.bf16_matrix_rate, peaks.fma_rate);
    if constexpr (std::is_same_v<Real, fp16>) return std::max(peaks.fp16_matrix_rate, peaks.fma_rate);
    return peaks.fma_rate;
}
template double gemm_peak<float>(const Peaks&);
template double gemm_peak<bf16>(const Peaks&);
template double gemm_peak<fp16>(const Peaks&);

Cell number(double value) { return std::isfinite(value) ? Cell(value) : Cell(nullptr); }
