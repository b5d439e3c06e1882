// Times one training step on the CPU, by phase. Compares its GEMMs with the measured peak of multiply-adds in
// registers, which is measured in the same seconds as the steps. build/bench times single layers.
//
//     train_step [-e d12] [-b 4] [-t 64] [--precision fp32] [--threads N] [-x 10]
//
// Prints the phases of the fastest step: other programs on the machine can only lengthen a time.
#include <omp.h>
#include <sys/resource.h>

#include <numeric>

#include "dev/report/peak_cpu.h"
#include "llmc/base/clock.h"
#include "llmc/base/precision.h"
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

// Of one step.
struct StepTimes {
    std::vector<Phase> phases;
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

static void print_step(const StepTimes& best, const MachinePeaks& peaks, double flops) {
    const double peak = peaks.bf16 > 0 ? peaks.bf16 : peaks.fma;
    for (const Phase& p : best.phases)
        printf("%-16s %16.2f %6.1f %%\n", p.name, p.seconds * 1e3, 100 * p.seconds / best.seconds);
    printf("%-16s %16.2f ms; CPU time of all threads %.2f ms\n\n", "step", best.seconds * 1e3,
           best.cpu * 1e3);
    printf("the step's GEMMs are %.1f GFLOP, which take %.1f ms at the peak: %.1f %% of the fastest step\n",
           flops / 1e9, 1e3 * flops / peak, 100 * flops / peak / best.seconds);
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
    std::vector<double> seconds;
    for (int step = 0; step <= o.steps; step++) {  // the first one maps memory: it does not count
        StepTimes times = run_step(g, optimizer, step, inputs, targets);
        peaks.measure(is_bf16);
        if (step == 0) continue;
        seconds.push_back(times.seconds);
        if (seconds.size() == 1 || times.seconds < best.seconds) best = std::move(times);
    }
    const double total = std::accumulate(seconds.begin(), seconds.end(), 0.0);
    std::sort(seconds.begin(), seconds.end());
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
    print_step(best, peaks, gemm_flops(config, double(o.batch) * o.sequence));
}

int main(int argc, char** argv) {
    start_program(argv);
    StepOptions o;
    CommandLine line("train_step", "Times a training step on the CPU, by phase.");
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
