// The section of training: see sections.h.
#include <algorithm>
#include <cmath>
#include <map>

#include "dev/report/power.h"
#include "dev/report/sections.h"
#include "dev/report/sweep.h"
#include "llmc/base/clock.h"
#include "llmc/base/precision.h"
#include "llmc/kernels/tokens.h"
#include "llmc/model/initialize.h"
#include "llmc/model/train_step.h"
#include "llmc/run/run_plan.h"

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
static Result train(ReportRun& run, const ModelConfig& config, const TrainingCase& c,
                    const PowerSource& power) {
    GPT2<Real> g(config, run.pad.get());
    gpt2_allocate(g, c.B, c.T, true, RECOMPUTE_NOTHING);
    Optimizer<Real> optimizer(g.config, g.memory, {.master_weights = true, .weight_decay = 0.1f});
    const bool gpu = !run.software();
    initialize_parameters(g.config, 42, parameter_writer(g, &optimizer));
    if (gpu && !run.quick) g.pad->tune();  // as train_gpt2 does
    StepRunner<Real> runner = {.g = g, .optimizer = optimizer, .B = c.B, .T = c.T, .micro_steps = 1};
    const std::vector<int> tokens = word_like_tokens(size_t(c.B) * c.T + 65536, g.config.vocab_size);
    const Span warm_up = gpu ? Span{40, 0.6, run.quick ? 1.0 : 3.0} : Span{1, 0, 0};
    const double most = std::clamp(run.end - now(), 1.0, 10.0);
    const Span measured =
        gpu ? Span{10, run.quick ? 0.5 : 2.0, most} : Span{run.quick ? 2 : 5, run.quick ? 0.0 : 1.0, 20};
    int step = 0;
    float loss = 0;
    run_steps(runner, step, loss, warm_up, tokens);
    PowerMeter meter(power);
    meter.start();
    const Spread seconds = spread_of(run_steps(runner, step, loss, measured, tokens));
    Result result = {.seconds = seconds.median, .loss = loss, .energy = meter.stop()};
    runner.forget_recordings();
    if (g.pad) result.bytes = g.pad->allocated_bytes();
    return result;
}

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

static std::string batch_text(const TrainingCase& c) { return format_string("%dx%d", c.B, c.T); }

static std::string case_text(const TrainingCase& c) {
    return format_string("%s, batch %s, %s", model_name(c.model).c_str(), batch_text(c).c_str(),
                         c.precision.c_str());
}

// What the measurements of the section share.
struct Training {
    ReportRun& run;
    PowerSource power;
    std::map<std::string, double> peaks = {};  // by precision, flops per second
    std::string too_large = {};                // cases, for the note
    bool one_is_enough = false, has_one = false;
};

static double flops_per_step(const TrainingCase& c) {
    return flops_per_token(parse_descriptor(c.model), c.T) * c.B * c.T;
}

static std::vector<Cell> row_of(const Training& training, const TrainingCase& c, const Result& r) {
    const double tokens = double(c.B) * c.T, flops = flops_per_step(c);
    const double peak = training.peaks.at(c.precision), watts = r.energy ? r.energy->watts() : 0;
    const auto cell = [](bool known, double value) { return known ? Cell(value) : Cell(nullptr); };
    return {model_name(c.model),
            batch_text(c),
            c.precision,
            tokens / r.seconds,
            1e3 * r.seconds,
            cell(peak > 0, 100 * flops / r.seconds / peak),
            cell(r.bytes > 0, double(r.bytes) / (1 << 30)),
            r.loss,
            cell(watts > 0, watts),
            cell(watts > 0, watts * r.seconds / tokens),
            r.energy ? Cell(training.power.name) : Cell(nullptr)};
}

// No row, but a remark in the note, if the model does not fit into the free memory.
template <class Real>
static Rows measure_case(Training& training, const TrainingCase& c) {
    ReportRun& run = training.run;
    if (training.one_is_enough && training.has_one) return {};
    const ModelConfig config = parse_descriptor(c.model);
    const MachinePeaks& peaks = peaks_of(run);
    training.peaks[c.precision] = gemm_peak<Real>(run.pad ? peaks.gpu : peaks.cpu);
    const MemoryRoom room = memory_room(run.pad.get());
    const MemoryNeed need = memory_need<Real>(
        config, run.pad.get(), {.master_weights = true, .B = c.B, .T = c.T, .recompute = RECOMPUTE_NOTHING});
    if (!room.holds(need)) {
        training.too_large +=
            format_string(" %s was skipped: it needs %.1f GiB, and %s has %.1f GiB.", case_text(c).c_str(),
                          double(need.bytes) / (1 << 30), room.where.c_str(), double(room.bytes) / (1 << 30));
        return {};
    }
    Result result = train<Real>(run, config, c, training.power);
    if (!run.pad) result.bytes = need.bytes;
    if (!std::isfinite(result.loss)) fail("%s: the loss is not finite after training", case_text(c).c_str());
    training.has_one = true;
    return {{"training", row_of(training, c, result)}};
}

// A lower estimate: a few steps at a tenth of the peak, and on a GPU preparation, such as drawing the weights
// and compiling kernels.
template <class Real>
static double expected_seconds(const ReportRun& run, const TrainingCase& c) {
    const double peak = gemm_peak<Real>(run.pad ? run.peaks.gpu : run.peaks.cpu);
    return (run.software() ? 0 : 4) + (peak > 0 ? 3 * flops_per_step(c) / (0.1 * peak) : 0);
}

static const char* const TINY = "custom:layers=2,heads=2,channels=64,max_seq_len=64,vocab=512";

// A quick run on a GPU measures the first of its cases for which there is time and memory: each compiles its
// own kernels, which is slow if the cache is empty. 16x1024 tokens fill a large GPU.
static std::vector<TrainingCase> default_cases(const ReportRun& run) {
    if (run.pad && run.software() && run.quick) return {{TINY, 4, 64, "fp32"}};  // seconds to compile
    std::vector<TrainingCase> small = {{TINY, 4, 64, "fp32"}, {TINY, 4, 64, "bf16"}};
    if (run.software() && !run.quick)
        small.insert(small.end(), {{"d12", 4, 64, "fp32"}, {"d12", 4, 64, "bf16"}});
    if (run.software()) return small;
    if (run.quick) return {{"d12", 16, 1024, "bf16"}, {"d12", 4, 64, "bf16"}};
    return {{"d12", 4, 64, "fp32"},   {"d12", 4, 1024, "fp32"}, {"d12", 32, 1024, "fp32"},
            {"d12", 4, 64, "bf16"},   {"d12", 4, 1024, "bf16"}, {"d12", 64, 1024, "bf16"},
            {"d24", 32, 1024, "bf16"}};
}

static std::string note_of(const Training& training, bool gpu) {
    std::string note =
        "Batches: sequences x tokens per sequence. No recomputation, fp32 master weights. Times: the median "
        "step after a warm-up. MFU: relative to the measured peak";
    for (const auto& [precision, peak] : training.peaks)
        if (peak > 0) note += format_string(", %s %.3g TFLOP/s", precision.c_str(), peak / 1e12);
    note += gpu ? ". Memory: allocated on the device." : ". Memory: of all tensors.";
    if (!training.power) note += " The system does not report the power of the device.";
    return note + training.too_large;
}

Section training_section(ReportRun& run, std::vector<TrainingCase> cases) {
    const auto training =
        std::make_shared<Training>(run, find_power_source(run.pad ? &run.pad->device() : nullptr));
    training->one_is_enough = cases.empty() && run.quick && !run.software();
    if (cases.empty()) cases = default_cases(run);
    Section section = {"Training GPT-2 on generated tokens: speed, memory and power.", {}};
    section.tables.push_back({.name = "training",
                              .title = "Training GPT-2",
                              .columns = {{"model", "", true},
                                          {"batch", "", true},
                                          {"precision", "", true},
                                          {"rate", "tokens/s", false, Better::more},
                                          {"step", "ms", false, Better::less},
                                          {"MFU", "%", false, Better::more, 3},
                                          {"memory", "GiB", false, Better::less, 3},
                                          {"loss"},
                                          {"power", "W", false, Better::neither, 3},
                                          {"energy", "J/token", false, Better::less, 3},
                                          {"power source"}}});
    for (const TrainingCase& c : cases)
        with_precision(c.precision, [&]<class Real>(Real) {
            section.measurements.push_back({case_text(c), flops_per_step(c),
                                            [=] { return measure_case<Real>(*training, c); },
                                            expected_seconds<Real>(run, c)});
        });
    section.finish = [training, gpu = run.pad != nullptr](std::vector<Table>& tables) {
        tables[0].note = note_of(*training, gpu);
    };
    return section;
}
