// Shared by the benchmark programs. Each program measures one layer and direction: every GPU version and
// config at GPT-2's shapes by GPU timestamps, and the CPU version for comparison. Each row gives GB/s or
// TFLOP/s, and GPU rows the percentage of a peak that the program measures on the same device (copy
// bandwidth, or fp32 FMA rate; kernels on tensor cores exceed it).
//
//     build/bench_layernorm_forward [--device NAME] [flags of Google Benchmark]
//
// For example, --benchmark_filter=forward2 runs one version. On a software device the shapes are smaller, so
// that a run ends soon. The environment variable LLMC_SIMD selects the CPU version's instruction set.
#pragma once
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "llmc/base/error.h"
#include "llmc/cpu/simd.h"
#include "llmc/launchpad/kernel_version.h"
#include "llmc/launchpad/launchpad.h"
#include "llmc/launchpad/peak.h"
#include "shaders/args.h"

struct Bench {
    std::unique_ptr<LaunchPad> pad;  // null: only CPU versions run
    Peaks peaks;
    bool small = true;          // without a GPU: use small shapes
    std::vector<void*> arrays;  // allocated for the current row
};

inline Bench& bench() {
    static Bench b;
    return b;
}

inline void report(benchmark::State& state, Work work, double seconds, const Peaks& peaks) {
    const bool arithmetic = work.flops > 0;
    state.counters[arithmetic ? "TFLOP/s" : "GB/s"] =
        arithmetic ? work.flops / seconds / 1e12 : work.bytes / seconds / 1e9;
    const double peak = arithmetic ? peaks.fma_rate : peaks.copy_rate;
    if (peak > 0) state.counters["%peak"] = 100 * (arithmetic ? work.flops : work.bytes) / seconds / peak;
}

// Appends the commands of one run.
using Launch = std::function<void()>;

// Registers one GPU row, if there is a device: the median of seven batches after a warm-up. `prepare` is
// called when the row runs: it allocates arrays with bench_array(), which are freed after the row, and
// returns the launch to measure.
inline void bench_gpu(const std::string& name, Work work, std::function<Launch()> prepare) {
    if (!bench().pad) return;
    benchmark::RegisterBenchmark(name.c_str(),
                                 [=](benchmark::State& state) {
                                     LaunchPad& pad = *bench().pad;
                                     const Launch launch = prepare();
                                     warm_up(pad, launch, 0.05);
                                     std::vector<double> seconds(7);
                                     for (auto _ : state) {
                                         for (double& s : seconds) s = seconds_per_launch(pad, launch, 0.01);
                                         std::nth_element(seconds.begin(), seconds.begin() + 3,
                                                          seconds.end());
                                         state.SetIterationTime(seconds[3]);
                                     }
                                     report(state, work, seconds[3], bench().peaks);
                                     for (void* array : bench().arrays) pad.free(array);
                                     bench().arrays.clear();
                                 })
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond)
        ->Iterations(1);
}

// Registers one CPU row, timed by the wall clock.
inline void bench_cpu(const std::string& name, Work work, std::function<void()> run) {
    benchmark::RegisterBenchmark(name.c_str(),
                                 [=](benchmark::State& state) {
                                     run();
                                     const auto start = std::chrono::steady_clock::now();
                                     int64_t runs = 0;
                                     for (auto _ : state) {
                                         run();
                                         runs++;
                                     }
                                     const std::chrono::duration<double> took =
                                         std::chrono::steady_clock::now() - start;
                                     report(state, work, took.count() / double(runs), {});
                                 })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond)
        ->MinTime(0.2);
}

// n elements on the device for the current row: `values`, repeated. The device copies them, which is faster
// than to upload them all over the bus.
template <class Element>
Element* bench_array(size_t n, const std::vector<Element>& values) {
    LaunchPad& pad = *bench().pad;
    Element* p = pad.allocate<Element>(n, "benchmark");
    bench().arrays.push_back(p);
    size_t filled = std::min(n, values.size());
    pad.upload(p, values.data(), filled * sizeof(Element));
    for (size_t count; filled < n; filled += count) {
        count = std::min(filled, n - filled);
        pad.copy(p + filled, p, count * sizeof(Element));
    }
    return p;
}

// n random values. A million of them are drawn once and repeated: drawing a billion would take longer than
// the run.
template <class Element = float>
Element* bench_array(size_t n, float scale = 1.0f) {
    static const std::vector<float> normal_values = [] {
        std::mt19937 generator(1);
        std::normal_distribution<float> normal;
        std::vector<float> drawn(1 << 20);
        for (float& v : drawn) v = normal(generator);
        return drawn;
    }();
    std::vector<Element> values(std::min(n, normal_values.size()));
    for (size_t i = 0; i < values.size(); i++) values[i] = Element(scale * normal_values[i]);
    return bench_array(n, values);
}

// Opens the device that --device names ("": the first one) and measures its peaks. With "cpu", or if there is
// no device and none was named, only CPU versions will run.
inline void open_bench_device(const std::string& name) {
    if (name == "cpu") return;
    Bench& b = bench();
    try {
        LaunchPadOptions options;
        options.device = name.empty() ? "0" : name;
        b.pad = std::make_unique<LaunchPad>(options);
    } catch (const Error& error) {
        if (!name.empty()) throw;
        fprintf(stderr, "benchmark: only CPU versions run: %s\n", error.what());
        return;
    }
    b.small = b.pad->device().type == DeviceType::software;
    b.peaks = measure_peaks(*b.pad);
    fprintf(stderr, "%s: copy bandwidth %.1f GB/s, fp32 FMA %.3f TFLOP/s\n", b.pad->device().name.c_str(),
            b.peaks.copy_rate / 1e9, b.peaks.fma_rate / 1e12);
}

// The body of main(): opens the device, calls `register_all`, and runs the benchmarks.
inline int run_benchmarks(int argc, char** argv, void (*register_all)()) {
    try {
        const char* simd = getenv("LLMC_SIMD");
        const std::string problem = choose_simd_by_name(simd && *simd ? simd : "auto");
        if (!problem.empty()) fail("LLMC_SIMD: %s", problem.c_str());
        std::string device;
        for (int i = 1; i + 1 < argc; i++)
            if (!strcmp(argv[i], "--device")) {
                device = argv[i + 1];
                std::rotate(argv + i, argv + i + 2, argv + argc);
                argc -= 2;
            }
        open_bench_device(device);
        benchmark::Initialize(&argc, argv);
        if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
        register_all();
        benchmark::RunSpecifiedBenchmarks();
        bench().pad.reset();
        return 0;
    } catch (const Error& error) {
        fprintf(stderr, "benchmark: %s\n", error.what());
        return 1;
    }
}
