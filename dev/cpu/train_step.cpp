// Times one training step on the CPU, by phase and by layer. Compares GEMMs with the measured peak of
// multiply-adds in registers, and memory-bound layers with the measured memory bandwidth. Both peaks are
// measured in the same seconds as the steps.
//
//     train_step [-e d12] [-b 4] [-t 64] [--precision fp32] [--threads N] [-x 10]
//
// Prints the phases of the fastest step, and each layer's least time in any step. Other programs on the
// machine can only lengthen a time, so the sum of the least times approximates the step time of an idle
// machine.
#include <omp.h>
#include <sys/resource.h>

#include <map>
#include <numeric>

#include "dev/report/peak_cpu.h"
#include "llmc/base/clock.h"
#include "llmc/base/precision.h"
#include "llmc/cpu/cpu_timer.h"
#include "llmc/model/gpt2.h"
#include "llmc/model/initialize.h"
#include "llmc/options/command_line.h"
#include "llmc/options/start_program.h"

struct StepOptions {
    std::string model = "d12", precision = "fp32";
    int batch = 4, sequence = 64, steps = 10, recompute = RECOMPUTE_NOTHING;
};

static double cpu_seconds() {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Phase {
    const char* name;
    double seconds;
};

// The phases and layers of one step.
struct StepTimes {
    std::vector<Phase> phases;
    std::vector<KernelTime> layers;
    double seconds = 0, cpu = 0;
};

template <class Real>
static StepTimes run_step(GPT2<Real>& g, Optimizer<Real>& optimizer, int step, const std::vector<int>& inputs,
                          const std::vector<int>& targets) {
    StepTimes times;
    const int B = g.acts.B, T = g.acts.T;
    auto phase = [&](const char* name, auto run) {
        const double start = now();
        run();
        times.phases.push_back({name, now() - start});
    };
    const double start = now(), cpu_start = cpu_seconds();
    phase("zero gradients", [&] { gpt2_zero_gradients(g); });
    phase("batch", [&] { gpt2_set_batch(g, inputs.data(), targets.data(), B * T, true); });
    phase("forward", [&] { gpt2_forward(g, B, T); });
    phase("head", [&] { gpt2_head(g, B, T, 1.0f / (float(B) * float(T)), Gradients::overwrite); });
    phase("backward", [&] { gpt2_backward(g, B, T, Gradients::overwrite); });
    phase("update", [&] {
        gpt2_gradient_norm(g, 1.0f);
        optimizer.begin_step(step, 3e-4f);
        optimizer.update(nullptr, g.tensors());
    });
    times.seconds = now() - start;
    times.cpu = cpu_seconds() - cpu_start;
    times.layers = take_cpu_times();
    return times;
}

// Flops of the linear layers' GEMMs in a step, forward and both gradients, without attention. The share of
// the peak refers to these.
static double gemm_flops(const ModelConfig& c, double num_rows) {
    const double C = c.channels, weights = 12 * C * C * c.num_layers + C * c.padded_vocab_size;
    return 6 * weights * num_rows;
}

struct MachinePeaks {
    double fma = 0, bf16 = 0, memory = 0;
    void measure(bool with_bf16) {
        fma = std::max(fma, cpu_fma_rate());
        if (with_bf16) bf16 = std::max(bf16, cpu_bf16_rate());
    }
};

// Replaces the times of layers that were faster in this step. Every step has the same layers.
static void keep_fastest(std::vector<KernelTime>& best, const std::vector<KernelTime>& layers) {
    if (best.empty()) best = layers;
    for (KernelTime& b : best)
        for (const KernelTime& t : layers)
            if (t.name == b.name) b.seconds = std::min(b.seconds, t.seconds);
}

static void print_row(const KernelTime& t, double step_seconds, double compute_peak, double memory_peak) {
    printf("%-38s %6llu %9.2f %6.1f %%", t.name.c_str(), static_cast<unsigned long long>(t.calls),
           t.seconds * 1e3, 100 * t.seconds / step_seconds);
    if (t.work.flops > 0)
        printf("  %8.1f GFLOP/s %5.1f %%", t.work.flops / t.seconds / 1e9,
               100 * t.work.flops / t.seconds / compute_peak);
    else if (t.work.bytes > 0)
        printf("  %8.1f GB/s    %5.1f %%", t.work.bytes / t.seconds / 1e9,
               100 * t.work.bytes / t.seconds / memory_peak);
    printf("\n");
}

// The total of each kind of GEMM over all shapes.
static std::vector<KernelTime> gemm_totals(const std::vector<KernelTime>& layers) {
    std::map<std::string, KernelTime> totals;
    for (const KernelTime& t : layers) {
        if (!(t.work.flops > 0)) continue;
        KernelTime& total = totals[t.name.substr(0, t.name.find(' '))];
        total.calls += t.calls;
        total.seconds += t.seconds;
        total.work.flops += t.work.flops;
    }
    std::vector<KernelTime> rows;
    for (auto& [name, total] : totals) {
        total.name = name + ", total";
        rows.push_back(total);
    }
    return rows;
}

static void print_step(const StepTimes& best, const std::vector<KernelTime>& layers,
                       const MachinePeaks& peaks, double flops) {
    const double peak = peaks.bf16 > 0 ? peaks.bf16 : peaks.fma;
    for (const Phase& p : best.phases)
        printf("%-38s %16.2f %6.1f %%\n", p.name, p.seconds * 1e3, 100 * p.seconds / best.seconds);
    printf("%-38s %16.2f ms; CPU time of all threads %.2f ms\n\n", "step", best.seconds * 1e3,
           best.cpu * 1e3);
    double sum = 0;
    for (const KernelTime& t : layers) sum += t.seconds;
    printf("%-38s %6s %9s %8s  %s\n", "layer, least time of any step", "calls", "ms", "share",
           "rate, share of peak");
    for (const KernelTime& t : layers) print_row(t, sum, peak, peaks.memory);
    printf("%-38s %16.2f\n\n", "sum", sum * 1e3);
    for (const KernelTime& t : gemm_totals(layers)) print_row(t, sum, peak, peaks.memory);
    printf(
        "\nthe step's GEMMs are %.1f GFLOP, which take %.1f ms at the peak: %.1f %% of the fastest step, "
        "%.1f %% of the sum\n",
        flops / 1e9, 1e3 * flops / peak, 100 * flops / peak / best.seconds, 100 * flops / peak / sum);
}

template <class Real>
static void time_steps(const StepOptions& o) {
    const bool is_bf16 = std::is_same_v<Real, bf16>;
    MachinePeaks peaks;
    peaks.memory = cpu_memory_rate();
    peaks.measure(is_bf16);
    const ModelConfig config = parse_descriptor(o.model);
    GPT2<Real> g(config, nullptr);
    gpt2_allocate(g, o.batch, o.sequence, true, Recompute(o.recompute));
    Optimizer<Real> optimizer(config, g.memory, {.master_weights = true, .weight_decay = 0.1f});
    initialize_parameters(config, 42, parameter_writer(g, &optimizer));
    std::vector<int> tokens(size_t(o.batch) * o.sequence + 1);
    for (size_t i = 0; i < tokens.size(); i++)
        tokens[i] = int((i * 2654435761u >> 7) % size_t(config.vocab_size));
    const std::vector<int> inputs(tokens.begin(), tokens.end() - 1),
        targets(tokens.begin() + 1, tokens.end());
    StepTimes best;
    std::vector<KernelTime> layers;
    std::vector<double> seconds;
    keep_cpu_times(true);
    for (int step = 0; step <= o.steps; step++) {  // the first one maps memory: it does not count
        StepTimes times = run_step(g, optimizer, step, inputs, targets);
        peaks.measure(is_bf16);
        if (step == 0) continue;
        seconds.push_back(times.seconds);
        keep_fastest(layers, times.layers);
        if (seconds.size() == 1 || times.seconds < best.seconds) best = std::move(times);
    }
    const double total = std::accumulate(seconds.begin(), seconds.end(), 0.0);
    std::sort(seconds.begin(), seconds.end());
    std::sort(layers.begin(), layers.end(),
              [](const KernelTime& a, const KernelTime& b) { return a.seconds > b.seconds; });
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    peaks.memory = std::max(peaks.memory, cpu_memory_rate());
    printf(
        "%s in %s, B=%d T=%d, %d threads, %d steps: fastest %.1f ms, median %.1f ms, %.0f tokens/s; loss "
        "%.6f\n",
        o.model.c_str(), real_name<Real>(), o.batch, o.sequence, omp_get_max_threads(), o.steps,
        seconds[0] * 1e3, seconds[seconds.size() / 2] * 1e3, double(o.batch) * o.sequence * o.steps / total,
        g.stats->loss);
    printf("peaks: FMA %.1f GFLOP/s, ", peaks.fma / 1e9);
    if (peaks.bf16 > 0) printf("bf16 pairs %.1f GFLOP/s, ", peaks.bf16 / 1e9);
    printf("memory %.1f GB/s; peak memory use %.2f GiB\n\n", peaks.memory / 1e9,
           double(usage.ru_maxrss) / (1 << 20));
    print_step(best, layers, peaks, gemm_flops(config, double(o.batch) * o.sequence));
}

int main(int argc, char** argv) {
    start_program(argv);
    StepOptions o;
    CommandLine line("train_step", "Times a training step on the CPU, by phase and layer.");
    line.accept_cpu_as_device();
    line.add("-e,--model", o.model, "d6, d12, ..., as in train_gpt2");
    line.add("-b,--batch-size", o.batch, "sequences (B)").between(1, 1 << 20);
    line.add("-t,--sequence-length", o.sequence, "tokens in a sequence (T)").between(1, 1 << 20);
    line.add("--precision", o.precision, "fp32, bf16 or fp16").one_of(precision_names());
    line.add("-r,--recompute", o.recompute, "as in train_gpt2").between(0, 3);
    line.add("-x,--steps", o.steps, "steps to time").between(1, 1 << 20);
    return line.run(argc, argv,
                    [&] { with_precision(o.precision, [&]<class Real>(Real) { time_steps<Real>(o); }); });
}
