// Training as train_gpt2 does it, on generated tokens and from random weights: tokens per second, MFU, memory
// and power, for a list of models, batches and precisions.
//
//     build/train_benchmark [--device auto] [--model d12,d24 --batch 4x64,64x1024 --precision fp32,bf16]
//     [--quick]
//
// A loss that is not finite ends the program with status 1.
#include <charconv>
#include <cmath>
#include <map>

#include "dev/report/peak_cpu.h"
#include "dev/report/power.h"
#include "dev/report/process.h"
#include "dev/report/results.h"
#include "dev/report/sweep.h"
#include "dev/vulkan/tokens.h"
#include "llmc/base/clock.h"
#include "llmc/base/precision.h"
#include "llmc/model/initialize.h"
#include "llmc/model/train_step.h"
#include "llmc/run/run_plan.h"

// One configuration to measure.
struct Case {
    std::string model;
    int B, T;
    std::string precision;
};

struct BenchmarkOptions {
    std::vector<std::string> models, batches, precisions;  // all combinations; empty: see cases_of()
};

struct Benchmark {
    ReportRun& run;
    PowerSource power;
    SweepPeaks measured = {};                  // of --peaks
    std::map<std::string, double> peaks = {};  // by precision, flops per second
    Table table = {};
    std::string left_out = {};
};

struct Result {
    double seconds = 0;  // of a step, median
    double loss = 0;
    uint64_t bytes = 0;
    std::optional<Energy> energy;
};

// How long to warm up or to measure: until both the steps and the seconds are reached, or `most` seconds.
// With queued steps it takes more than 30 until the GPU's clock is up and the host's caches are warm.
struct Span {
    int steps;
    double seconds, most;
    bool reached(int done, double elapsed) const {
        return done > 0 && ((done >= steps && elapsed >= seconds) || elapsed >= most);
    }
};

// Runs steps until the span is reached and returns the seconds from the end of each step to the end of the
// next. On a device the host is one step ahead, as in train_gpt2's loop.
template <class Real>
static std::vector<double> run_steps(StepRunner<Real>& runner, int& step, float& loss, const Span& span,
                                     const std::vector<int>& tokens) {
    const size_t num_rows = size_t(runner.B) * size_t(runner.T);
    const auto run = [&](int number) {
        const size_t first = size_t(number) * 7919 % (tokens.size() - num_rows);
        return runner.run(number, 3e-4f, [&](int* inputs, int* targets) {
            std::copy_n(tokens.begin() + first, num_rows, inputs);
            std::copy_n(tokens.begin() + first + 1, num_rows, targets);
        });
    };
    std::vector<double> seconds;
    const double start = now();
    double last = start;
    const auto finish = [&](int number, Ticket ticket) {
        loss = runner.stats(number, ticket).loss;
        seconds.push_back(now() - last);
        last += seconds.back();
    };
    Ticket pending = run(step);
    while (!span.reached(int(seconds.size()) + 1, now() - start)) {
        if (!runner.g.pad) finish(step, pending);
        const Ticket next = run(step + 1);
        if (runner.g.pad) finish(step, pending);
        pending = next;
        step++;
    }
    finish(step++, pending);
    return seconds;
}

template <class Real>
struct Trainee {
    GPT2<Real> g;
    Optimizer<Real> optimizer;
    Trainee(const ModelConfig& config, LaunchPad* pad, const Case& c)
        : g(config, pad), optimizer(allocate(c)) {}

   private:
    Optimizer<Real> allocate(const Case& c) {
        gpt2_allocate(g, c.B, c.T, true, RECOMPUTE_NOTHING);
        return {g.config, g.memory, {.master_weights = true, .weight_decay = 0.1f}};
    }
};

template <class Real>
static Result train(Benchmark& benchmark, Trainee<Real>& trainee, const Case& c) {
    GPT2<Real>& g = trainee.g;
    const bool quick = benchmark.run.options.quick, gpu = !benchmark.run.software();
    initialize_parameters(g.config, 42, parameter_writer(g, &trainee.optimizer));
    if (gpu && !quick) g.pad->tune();  // as train_gpt2 does
    StepRunner<Real> runner = {.g = g, .optimizer = trainee.optimizer, .B = c.B, .T = c.T, .micro_steps = 1};
    const std::vector<int> tokens = word_like_tokens(size_t(c.B) * c.T + 65536, g.config.vocab_size);
    const Span warm_up = gpu ? Span{40, 0.6, quick ? 1.0 : 3.0} : Span{1, 0, 0};
    const double most = std::clamp(benchmark.run.seconds_left(), 1.0, 10.0);
    const Span measured =
        gpu ? Span{10, quick ? 0.5 : 2.0, most} : Span{quick ? 2 : 5, quick ? 0.0 : 1.0, 20};
    int step = 0;
    float loss = 0;
    run_steps(runner, step, loss, warm_up, tokens);
    PowerMeter meter(benchmark.power);
    meter.start();
    std::vector<double> seconds = run_steps(runner, step, loss, measured, tokens);
    Result result;
    result.energy = meter.stop();
    runner.forget_recordings();
    result.loss = loss;
    result.bytes = g.pad ? g.pad->allocated_bytes() : resident_memory();
    std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
    result.seconds = seconds[seconds.size() / 2];
    return result;
}

static std::string batch_text(const Case& c) { return format_string("%dx%d", c.B, c.T); }

// "124M (d12)"; "0.1M (2 layers, 64 channels)" for a custom model.
static std::string model_name(const std::string& descriptor) {
    const ModelConfig config = parse_descriptor(descriptor);
    const double millions = double(num_parameters(config)) / 1e6;
    std::string shape = descriptor;
    if (descriptor.starts_with("custom:"))
        shape = format_string("%d layer%s, %d channels", config.num_layers, config.num_layers == 1 ? "" : "s",
                              config.channels);
    return format_string(millions < 9.5 ? "%.2gM (%s)" : "%.0fM (%s)", millions, shape.c_str());
}

static std::string case_text(const Case& c) {
    return format_string("%s, batch %s, %s", model_name(c.model).c_str(), batch_text(c).c_str(),
                         c.precision.c_str());
}

static double flops_per_step(const ModelConfig& config, const Case& c) {
    return flops_per_token(config, c.T) * c.B * c.T;
}

static void add_row(Benchmark& benchmark, const Case& c, const ModelConfig& config, const Result& r) {
    const double tokens = double(c.B) * c.T, flops = flops_per_step(config, c);
    const double peak = benchmark.peaks[c.precision];
    auto cell = [](bool known, double value) { return known ? Cell(value) : Cell(nullptr); };
    const double watts = r.energy ? r.energy->watts() : 0;
    benchmark.table.rows.push_back({model_name(c.model), batch_text(c), c.precision, tokens / r.seconds,
                                    1e3 * r.seconds, cell(peak > 0, 100 * flops / r.seconds / peak),
                                    cell(r.bytes > 0, double(r.bytes) / (1 << 30)), r.loss,
                                    cell(watts > 0, watts), cell(watts > 0, watts * r.seconds / tokens),
                                    r.energy ? Cell(benchmark.power.name) : Cell(nullptr)});
}

// Null, with a remark in the note, if the model does not fit into the free memory.
template <class Real>
static std::unique_ptr<Trainee<Real>> allocate_model(Benchmark& benchmark, const ModelConfig& config,
                                                     const Case& c) {
    LaunchPad* pad = benchmark.run.pad.get();
    const MemoryRoom room = memory_room(pad);
    const MemoryNeed need = memory_need<Real>(
        config, pad, {.master_weights = true, .B = c.B, .T = c.T, .recompute = RECOMPUTE_NOTHING});
    try {
        if (!room.holds(need)) fail("too large");
        return std::make_unique<Trainee<Real>>(config, pad, c);
    } catch (const Error&) {
        benchmark.left_out +=
            format_string(" %s was skipped: it needs %.1f GiB, and %s has %.1f GiB.", case_text(c).c_str(),
                          double(need.bytes) / (1 << 30), room.where.c_str(), double(room.bytes) / (1 << 30));
        return nullptr;
    }
}

// A lower estimate of the seconds that a case takes: a few steps at a tenth of the peak, and on a GPU
// preparation, such as drawing the weights and compiling kernels (which takes even longer if the cache is
// empty).
static double expected_seconds(const Benchmark& benchmark, const ModelConfig& config, const Case& c) {
    const double peak = benchmark.peaks.at(c.precision), preparation = benchmark.run.software() ? 0 : 4;
    return peak > 0 ? preparation + 3 * flops_per_step(config, c) / (0.1 * peak) : preparation;
}

// A software device runs on the CPU.
template <class Real>
static double measured_peak(LaunchPad* pad) {
    if (pad && pad->device().is_gpu()) return peak_rate<Real>(pad);
    return std::max(cpu_fma_rate(0.5), std::is_same_v<Real, bf16> && !pad ? cpu_bf16_rate(0.5) : 0.0);
}

// Whether it was measured: there were time and memory.
template <class Real>
static bool measure_case(Benchmark& benchmark, const Case& c) {
    ReportRun& run = benchmark.run;
    const ModelConfig config = parse_descriptor(c.model);
    if (c.T > config.max_seq_len)
        fail("--batch %s: %s supports at most %d tokens per sequence", batch_text(c).c_str(), c.model.c_str(),
             config.max_seq_len);
    if (!benchmark.peaks.count(c.precision)) {
        run.progress(c.precision + " peak");
        const Peaks peaks = run.pad ? benchmark.measured.gpu : benchmark.measured.cpu;
        benchmark.peaks[c.precision] =
            run.options.peaks.empty() ? measured_peak<Real>(run.pad.get()) : gemm_peak<Real>(peaks);
    }
    bool measured = false;
    const auto measure_it = [&] {
        const std::unique_ptr<Trainee<Real>> trainee = allocate_model<Real>(benchmark, config, c);
        if (!trainee) return;
        const Result result = train(benchmark, *trainee, c);
        if (!std::isfinite(result.loss))
            fail("%s: the loss is not finite after training", case_text(c).c_str());
        add_row(benchmark, c, config, result);
        measured = true;
    };
    run.step(case_text(c), flops_per_step(config, c), measure_it, expected_seconds(benchmark, config, c));
    return measured;
}

static bool measure_case(Benchmark& benchmark, const Case& c) {
    return with_precision(c.precision, [&]<class Real>(Real) { return measure_case<Real>(benchmark, c); });
}

static Case parse_case(const std::string& model, const std::string& batch, const std::string& precision) {
    Case c = {model, 0, 0, precision};
    const char *end = batch.c_str() + batch.size(), *middle = std::from_chars(batch.c_str(), end, c.B).ptr;
    const bool has_both = *middle == 'x' && std::from_chars(middle + 1, end, c.T).ptr == end;
    if (!has_both || c.B < 1 || c.T < 1 || c.B > (1 << 29) / c.T)  // too many digits leave 0
        fail("--batch %s: expected sequences x tokens, such as 4x64", batch.c_str());
    return c;
}

static const char* const TINY = "custom:layers=2,heads=2,channels=64,max_seq_len=64,vocab=512";

// A quick run on a GPU measures one case: the first of these for which there is time and memory. Each case
// compiles its own kernels, which is slow if the cache is empty. 16x1024 tokens fill a large GPU.
static const std::vector<Case> quick_cases = {{"d12", 16, 1024, "bf16"}, {"d12", 4, 64, "bf16"}};

// The default cases, except for a quick run on a GPU.
static std::vector<Case> default_cases(const ReportRun& run) {
    if (run.pad && run.software() && run.options.quick)
        return {{TINY, 4, 64, "fp32"}};  // kernels take seconds to compile
    if (run.software() && run.options.quick) return {{TINY, 4, 64, "fp32"}, {TINY, 4, 64, "bf16"}};
    if (run.software())
        return {{TINY, 4, 64, "fp32"}, {TINY, 4, 64, "bf16"}, {"d12", 4, 64, "fp32"}, {"d12", 4, 64, "bf16"}};
    return {{"d12", 4, 64, "fp32"},   {"d12", 4, 1024, "fp32"}, {"d12", 32, 1024, "fp32"},
            {"d12", 4, 64, "bf16"},   {"d12", 4, 1024, "bf16"}, {"d12", 64, 1024, "bf16"},
            {"d24", 32, 1024, "bf16"}};
}

// Undoes the splitting at commas inside descriptors such as custom:layers=2,heads=2: a part that has a "="
// and no ":" continues the model before it.
static std::vector<std::string> join_models(const std::vector<std::string>& parts) {
    std::vector<std::string> models;
    for (const std::string& part : parts) {
        const bool continues = part.find('=') != std::string::npos && part.find(':') == std::string::npos;
        if (continues && !models.empty())
            models.back() += "," + part;
        else
            models.push_back(part);
    }
    return models;
}

static bool uses_defaults(const BenchmarkOptions& o) {
    return o.models.empty() && o.batches.empty() && o.precisions.empty();
}

static std::vector<Case> cases_of(const ReportRun& run, BenchmarkOptions o) {
    if (uses_defaults(o)) return default_cases(run);
    if (o.models.empty()) o.models = {run.software() && run.options.quick ? TINY : "d12"};
    if (o.batches.empty()) o.batches = {"4x64"};
    if (o.precisions.empty()) o.precisions = {"fp32", "bf16"};
    std::vector<Case> cases;
    for (const std::string& model : join_models(o.models))
        for (const std::string& precision : o.precisions)
            for (const std::string& batch : o.batches) cases.push_back(parse_case(model, batch, precision));
    return cases;
}

static void measure(ReportRun& run, const BenchmarkOptions& options) {
    Benchmark benchmark = {run, find_power_source(run.pad ? &run.pad->device() : nullptr)};
    if (!run.options.peaks.empty()) benchmark.measured = sweep_peaks(run);
    benchmark.table = {.name = "training",
                       .title = "Training GPT-2",
                       .columns = {{.name = "model", .key = true},
                                   {.name = "batch", .key = true},
                                   {.name = "precision", .key = true},
                                   {.name = "rate", .unit = "tokens/s", .better = Better::more},
                                   {.name = "step", .unit = "ms", .better = Better::less},
                                   {.name = "MFU", .unit = "%", .better = Better::more, .digits = 3},
                                   {.name = "memory", .unit = "GiB", .better = Better::less, .digits = 3},
                                   {.name = "loss"},
                                   {.name = "power", .unit = "W", .digits = 3},
                                   {.name = "energy", .unit = "J/token", .better = Better::less, .digits = 3},
                                   {.name = "power source"}}};
    const bool one_is_enough = uses_defaults(options) && run.options.quick && !run.software();
    for (const Case& c : one_is_enough ? quick_cases : cases_of(run, options))
        if (measure_case(benchmark, c) && one_is_enough) break;
    benchmark.table.note =
        "Batches: sequences x tokens per sequence. No recomputation, fp32 master weights. Times: the median "
        "step after a warm-up. MFU: relative to the measured peak";
    for (const auto& [precision, peak] : benchmark.peaks)
        if (peak > 0)
            benchmark.table.note += format_string(", %s %.3g TFLOP/s", precision.c_str(), peak / 1e12);
    benchmark.table.note +=
        run.pad ? ". Memory: allocated on the device." : ". Memory: resident in the process.";
    if (!benchmark.power) benchmark.table.note += " The system does not report the power of the device.";
    benchmark.table.note += benchmark.left_out;
    run.tables.push_back(benchmark.table);
}

int main(int argc, char** argv) {
    BenchmarkOptions options;
    return run_report_program({.name = "train_benchmark",
                               .what = "Training GPT-2 on generated tokens: speed, memory and power.",
                               .options = {{.name = "--model",
                                            .help = "models, as train_gpt2's -e: d12,d24,...",
                                            .values = &options.models},
                                           {.name = "--batch",
                                            .help = "sequences x tokens: 4x64,64x1024,...",
                                            .values = &options.batches},
                                           {.name = "--precision",
                                            .help = "storage types: fp32,bf16,fp16",
                                            .values = &options.precisions,
                                            .allowed = {"fp32", "bf16", "fp16"}}},
                               .measure = [&](ReportRun& run) { measure(run, options); }},
                              argc, argv);
}
