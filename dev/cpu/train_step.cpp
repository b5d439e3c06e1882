// Times one training step on the CPU, by phase and by layer, beside what the CPU was measured to do at most
// in the same seconds: multiply-adds in registers for products, reading and writing in place for what moves
// memory.
//
//     train_step [-e d12] [-b 4] [-t 64] [--precision fp32] [--threads N] [-x 10]
//
// Phases are those of the fastest step; each layer's time is its least in any step, since other programs on
// the machine only ever make it longer. On a machine that is not idle the sum of those is what an idle one
// would come near to.
#include <omp.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <map>

#include "llmc/clock.h"
#include "llmc/cpu_times.h"
#include "llmc/gpt2_update.h"
#include "llmc/initialize.h"
#include "llmc/openmp_waiting.h"
#include "llmc/peak_cpu.h"

struct StepOptions {
    std::string model = "d12", precision = "fp32";
    int batch = 4, sequence = 64, steps = 10, threads = 0, recompute = RECOMPUTE_NOTHING;
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

// One step: its phases and layers.
struct StepTimes {
    std::vector<Phase> phases;
    std::vector<KernelTime> layers;
    double seconds = 0, cpu = 0;
};

template <class Real>
static StepTimes run_step(GPT2<Real>& g, int step, const std::vector<int>& inputs,
                          const std::vector<int>& targets) {
    StepTimes times;
    const int B = g.B, T = g.T;
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
        const AdamWStep numbers = adamw_step(3e-4f, 0.9f, 0.95f, 1e-8f, step + 1);
        g.memory.upload(g.adamw, &numbers, 1);
        gpt2_gradient_norm(g, 1.0f);
        gpt2_update(g, 0.1f);
    });
    times.seconds = now() - start;
    times.cpu = cpu_seconds() - cpu_start;
    times.layers = take_cpu_times();
    return times;
}

// Flops of the products of a step alone, forward and both gradients: what the share of the peak is reckoned
// by.
static double product_flops(const ModelConfig& c, double rows) {
    const double C = c.channels, weights = 12 * C * C * c.num_layers + C * c.padded_vocab_size;
    return 6 * weights * rows;
}

struct MachinePeaks {
    double fma = 0, bf16 = 0, memory = 0;
    void measure(bool with_bf16) {
        fma = std::max(fma, cpu_fma_rate());
        if (with_bf16) bf16 = std::max(bf16, cpu_bf16_rate());
    }
};

// Takes over what was quicker in another step. Every step has the same layers.
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

// The sum over the shapes of each kind of product.
static std::vector<KernelTime> product_sums(const std::vector<KernelTime>& layers) {
    std::map<std::string, KernelTime> sums;
    for (const KernelTime& t : layers) {
        if (!(t.work.flops > 0)) continue;
        KernelTime& sum = sums[t.name.substr(0, t.name.find(' '))];
        sum.calls += t.calls;
        sum.seconds += t.seconds;
        sum.work.flops += t.work.flops;
    }
    std::vector<KernelTime> rows;
    for (auto& [name, sum] : sums) {
        sum.name = name + ", all";
        rows.push_back(sum);
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
    double known = 0;
    for (const KernelTime& t : layers) known += t.seconds;
    printf("%-38s %6s %9s %8s  %s\n", "layer, its least time in any step", "calls", "ms", "share",
           "rate, share of the peak");
    for (const KernelTime& t : layers) print_row(t, known, peak, peaks.memory);
    printf("%-38s %16.2f\n\n", "sum", known * 1e3);
    for (const KernelTime& t : product_sums(layers)) print_row(t, known, peak, peaks.memory);
    printf(
        "\nthe step's products are %.1f GFLOP, which the peak allows in %.1f ms: %.1f %% of the fastest "
        "step, %.1f %% of "
        "the sum\n",
        flops / 1e9, 1e3 * flops / peak, 100 * flops / peak / best.seconds, 100 * flops / peak / known);
}

template <class Real>
static void time_steps(const StepOptions& o) {
    const bool is_bf16 = std::is_same_v<Real, bf16>;
    MachinePeaks peaks;
    peaks.memory = cpu_memory_rate();
    peaks.measure(is_bf16);
    const ModelConfig config = parse_descriptor(o.model);
    GPT2<Real> g(config, nullptr, true);
    initialize_parameters(config, 42, parameter_writer(g));
    gpt2_allocate(g, o.batch, o.sequence, true, Recompute(o.recompute));
    std::vector<int> tokens(size_t(o.batch) * o.sequence + 1);
    for (size_t i = 0; i < tokens.size(); i++)
        tokens[i] = int((i * 2654435761u >> 7) % size_t(config.vocab_size));
    const std::vector<int> inputs(tokens.begin(), tokens.end() - 1),
        targets(tokens.begin() + 1, tokens.end());
    StepTimes best;
    std::vector<KernelTime> layers;
    std::vector<double> seconds;
    keep_cpu_times(true);
    for (int step = 0; step <= o.steps; step++) {  // the first one touches memory: it does not count
        StepTimes times = run_step(g, step, inputs, targets);
        peaks.measure(is_bf16);
        if (step == 0) continue;
        seconds.push_back(times.seconds);
        keep_fastest(layers, times.layers);
        if (seconds.size() == 1 || times.seconds < best.seconds) best = std::move(times);
    }
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
        seconds[0] * 1e3, seconds[seconds.size() / 2] * 1e3, o.batch * o.sequence / seconds[0], g.stats[0]);
    printf("peaks: multiply-adds %.1f GFLOP/s, ", peaks.fma / 1e9);
    if (peaks.bf16 > 0) printf("in bf16 %.1f GFLOP/s, ", peaks.bf16 / 1e9);
    printf("memory %.1f GB/s; most memory %.2f GiB\n\n", peaks.memory / 1e9,
           double(usage.ru_maxrss) / (1 << 20));
    print_step(best, layers, peaks, product_flops(config, double(o.batch) * o.sequence));
}

int main(int argc, char** argv) {
    wait_briefly(argv);
    StepOptions o;
    CLI::App app("Times a training step on the CPU, by phase and layer.", "train_step");
    app.set_help_flag("--help", "show this text");
    const auto positive = CLI::Range(1, 1 << 20);
    app.add_option("-e,--model", o.model, "d6 d12 ..., as train_gpt2's")->capture_default_str();
    app.add_option("-b,--batch-size", o.batch, "sequences (B)")->check(positive)->capture_default_str();
    app.add_option("-t,--sequence-length", o.sequence, "tokens in a sequence (T)")
        ->check(positive)
        ->capture_default_str();
    app.add_option("--precision", o.precision, "fp32, bf16 or fp16")
        ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
        ->capture_default_str();
    app.add_option("-r,--recompute", o.recompute, "as train_gpt2's")
        ->check(CLI::Range(0, 2))
        ->capture_default_str();
    app.add_option("--threads", o.threads, "threads (default: OMP_NUM_THREADS, or all cores)")
        ->check(positive);
    app.add_option("-x,--steps", o.steps, "steps to time")->check(positive)->capture_default_str();
    try {
        app.parse(argc, argv);
        if (o.threads) omp_set_num_threads(o.threads);
        if (o.precision == "bf16")
            time_steps<bf16>(o);
        else if (o.precision == "fp16")
            time_steps<fp16>(o);
        else
            time_steps<float>(o);
    } catch (const CLI::Success& help) {
        return app.exit(help);
    } catch (const std::exception& error) {
        fprintf(stderr, "train_step: %s\n", error.what());
        return 1;
    }
    return 0;
}
