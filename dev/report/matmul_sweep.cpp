// Square GEMMs on the CPU and on the GPU, by the layer function that training calls (matmul_forward):
// correctness, speed and the crossover size.
//
//     build/matmul_sweep [--device auto] [--sizes 50,100,...] [--precision fp32,bf16,fp16] [--quick] [--json
//     FILE]
//
// A wrong result ends the program with status 1.
#include "dev/report/crossover.h"
#include "dev/report/matmul_check.h"
#include "dev/report/results.h"
#include "dev/report/sweep.h"
#include "llmc/base/precision.h"
#include "llmc/launchpad/memory.h"
#include "llmc/layers/matmul.h"
#include "llmc/run/run_plan.h"

struct SweepOptions {
    std::vector<int> sizes;
    std::vector<std::string> precisions;  // empty: depends on quick, as do the sizes
    std::vector<int> plant_error;  // for tests: sizes at which one element of the GPU's result is changed
};

struct Sweep {
    ReportRun& run;
    SweepOptions options;
    SweepPeaks peaks;
    Table rates, compared;
    std::vector<std::string> crossovers;
    bool left_out = false;
};

// The measurements at one size; NaN: skipped.
struct SizeTimes {
    double cpu = NOT_MEASURED;
    GpuSeconds gpu = {NOT_MEASURED, NOT_MEASURED};
    GemmErrors errors = {NOT_MEASURED, NOT_MEASURED, NOT_MEASURED, 0};
};

// The operands and results of a square GEMM, on the host and, if pad is set, on the device.
template <class Real>
struct SquareGemm {
    int size;
    size_t n;  // elements of each matrix
    Memory host{nullptr}, device;
    Real *inp, *weight, *out = nullptr, *want = nullptr;  // on the host
    Real *gpu_inp = nullptr, *gpu_weight = nullptr, *gpu_out = nullptr;

    SquareGemm(int gemm_size, bool cpu, LaunchPad* pad)
        : size(gemm_size), n(size_t(size) * size), device(pad) {
        inp = host.allocate<Real>(n, "inputs");
        weight = host.allocate<Real>(n, "weights");
        if (cpu) want = host.allocate<Real>(n, "the CPU's result");
        fill_random(inp, n, 1);
        fill_random(weight, n, 2);
        if (!pad) return;
        out = host.allocate<Real>(n, "the GPU's result");
        gpu_inp = device.allocate<Real>(n, "inputs");
        gpu_weight = device.allocate<Real>(n, "weights");
        gpu_out = device.allocate<Real>(n, "result");
        device.upload(gpu_inp, inp, n);
        device.upload(gpu_weight, weight, n);
    }
    void run_on_cpu() {
        matmul_forward<Real>(
            nullptr, {.out = want, .inp = inp, .weight = weight, .num_rows = size, .C = size, .OC = size});
    }
    void run_on_gpu() {
        matmul_forward<Real>(
            device.pad,
            {.out = gpu_out, .inp = gpu_inp, .weight = gpu_weight, .num_rows = size, .C = size, .OC = size});
    }
};

// Selects the fastest tile shape for this size, as train_gpt2 does before training.
template <class Real>
static void tune(SquareGemm<Real>& gemm) {
    LaunchPad& pad = *gemm.device.pad;
    if (pad.device().type == DeviceType::software) return;
    pad.prepare(pad.dry_run([&] { gemm.run_on_gpu(); }));
    pad.tune();
}

template <class Real>
static bool fits(const LaunchPad* pad, int size, int arrays) {
    const uint64_t bytes = sizeof(Real) * uint64_t(size) * uint64_t(size);
    return memory_room(pad).holds({bytes * uint64_t(arrays + 1), bytes, ""});
}

// Checks the result after all launches. It started as NaN, so elements that no launch writes are found.
template <class Real>
static GemmErrors checked(SquareGemm<Real>& gemm, bool plant_error) {
    const int size = gemm.size;
    gemm.device.download(gemm.out, gemm.gpu_out, gemm.n);
    if (plant_error) plant_wrong_element(gemm.out, gemm.n);
    const GemmErrors errors = gemm_errors<Real>(
        {.out = gemm.out, .inp = gemm.inp, .weight = gemm.weight, .num_rows = size, .C = size, .OC = size},
        gemm.want);
    check_gemm<Real>(errors, size, size, size);
    return errors;
}

template <class Real>
static SizeTimes measure_size(Sweep& sweep, int size, bool cpu, bool gpu) {
    const bool quick = sweep.run.options.quick;
    LaunchPad* pad = gpu ? sweep.run.pad.get() : nullptr;
    SizeTimes times;
    SquareGemm<Real> gemm(size, cpu, pad);
    if (gpu && !quick) tune(gemm);
    if (cpu) times.cpu = cpu_seconds([&] { gemm.run_on_cpu(); }, quick ? 0.02 : 0.2);
    if (!gpu) return times;
    pad->fill(gemm.gpu_out, 0xffffffff, (gemm.n * sizeof(Real) + 3) / 4 * 4);
    times.gpu = gpu_seconds(
        *pad, [&] { gemm.run_on_gpu(); }, quick);
    const std::vector<int>& plant = sweep.options.plant_error;
    times.errors = checked(gemm, std::count(plant.begin(), plant.end(), size) > 0);
    return times;
}

static double gemm_flops(int size) { return 2.0 * size * size * size; }

template <class Real>
static void add_rows(Sweep& sweep, int size, const SizeTimes& times) {
    const double flops = gemm_flops(size);
    const std::string type = real_name<Real>();
    auto add_rate = [&](const char* where, double seconds, const Peaks& peaks) {
        sweep.rates.rows.push_back({type + where, size, number(1e3 * seconds), number(flops / seconds / 1e12),
                                    number(100 * flops / seconds / gemm_peak<Real>(peaks))});
        sweep.left_out |= !(seconds > 0);
    };
    add_rate(" CPU", times.cpu, sweep.peaks.cpu);
    if (!sweep.run.pad) return;
    add_rate(" GPU", times.gpu.queued, sweep.peaks.gpu);
    sweep.compared.rows.push_back({type, size, number(1e3 * times.cpu), number(1e3 * times.gpu.queued),
                                   number(1e3 * times.gpu.synchronous), number(times.cpu / times.gpu.queued),
                                   number(times.errors.relative), number(times.errors.largest),
                                   number(times.errors.checksum)});
}

template <class Real>
static void measure_type(Sweep& sweep) {
    const bool quick = sweep.run.options.quick;
    TimeBudget cpu_budget = {quick ? 0.1 : 5.0};
    TimeBudget gpu_budget = {quick ? 0.3 : sweep.run.software() ? 1.0 : 3.0};
    std::vector<TimePair> queued, synchronous;
    for (const int size : sweep.options.sizes) {
        const double flops = gemm_flops(size);
        const bool cpu = cpu_budget.allows(flops) && fits<Real>(nullptr, size, 4);
        const bool gpu = sweep.run.pad && gpu_budget.allows(flops) && fits<Real>(nullptr, size, 4) &&
                         fits<Real>(sweep.run.pad.get(), size, 3);
        SizeTimes times;
        const auto measure_it = [&] {
            if (cpu || gpu) times = measure_size<Real>(sweep, size, cpu, gpu);
        };
        if (!sweep.run.step(format_string("%s GEMM of size %d", real_name<Real>(), size), size, measure_it))
            continue;
        if (cpu) cpu_budget.took(flops, times.cpu);
        if (gpu) gpu_budget.took(flops, times.gpu.queued);
        add_rows<Real>(sweep, size, times);
        queued.push_back({double(size), times.gpu.queued, times.cpu});
        synchronous.push_back({double(size), times.gpu.synchronous, times.cpu});
    }
    sweep.crossovers.push_back(format_string(
        "%s GEMM crossover size queued: %s; synchronous: %s", real_name<Real>(),
        crossover_text(find_crossover(queued)).c_str(), crossover_text(find_crossover(synchronous)).c_str()));
}

static void make_tables(Sweep& sweep) {
    sweep.rates = {.name = "matmul",
                   .title = "Square GEMMs",
                   .columns = {{.name = "GEMM", .key = true},
                               {.name = "size", .key = true},
                               {.name = "time", .unit = "ms", .better = Better::less},
                               {.name = "rate", .unit = "TFLOP/s", .better = Better::more},
                               {.name = "of peak", .unit = "%", .digits = 3}}};
    sweep.compared = {.name = "matmul_compared",
                      .title = "Square GEMMs: GPU and CPU",
                      .columns = {{.name = "type", .key = true},
                                  {.name = "size", .key = true},
                                  {.name = "CPU", .unit = "ms", .better = Better::less},
                                  {.name = "GPU, queued", .unit = "ms", .better = Better::less},
                                  {.name = "GPU, synchronous", .unit = "ms", .better = Better::less},
                                  {.name = "speed-up", .better = Better::more, .digits = 3},
                                  {.name = "relative error", .digits = 2},
                                  {.name = "largest error", .digits = 2},
                                  {.name = "checksum error", .digits = 2}}};
}

static std::string rates_note(const Sweep& sweep) {
    const Peaks &cpu = sweep.peaks.cpu, &gpu = sweep.peaks.gpu;
    std::string note = format_string(
        "out = inp weight^T by matmul_forward, with the operands in the memory of the device. GPU: time per "
        "GEMM in a queue of many. Peaks: CPU %.3g TFLOP/s in fp32, %.3g in bf16",
        gemm_peak<float>(cpu) / 1e12, gemm_peak<bf16>(cpu) / 1e12);
    if (sweep.run.pad)
        note += format_string("; GPU %.3g in fp32, %.3g in bf16, %.3g in fp16", gemm_peak<float>(gpu) / 1e12,
                              gemm_peak<bf16>(gpu) / 1e12, gemm_peak<fp16>(gpu) / 1e12);
    if (sweep.run.pad && sweep.run.software()) note += " (a software device: the CPU's peaks)";
    note += ".";
    if (sweep.left_out) note += " Empty rows: skipped, since they would take too long or too much memory.";
    return note;
}

static std::string compared_note(const Sweep& sweep) {
    std::string note;
    for (const std::string& text : sweep.crossovers) note += text + ". ";
    return note +
           format_string(
               "Queued: GPU time per GEMM in a queue of dependent launches. Synchronous: wall-clock time to "
               "launch one, submit and wait. Errors: the GPU's result compared with the CPU's, in all rows "
               "or, if the CPU did not compute all, in %d. The checksum covers every row, in fp64. Limits of "
               "the relative error, and of the largest and checksum error: %.2g, %.2g in fp32; %.2g, %.2g in "
               "bf16; %.2g, %.2g in fp16.",
               GEMM_CHECK_ROWS, difference_limits<float>().relative, difference_limits<float>().largest,
               difference_limits<bf16>().relative, difference_limits<bf16>().largest,
               difference_limits<fp16>().relative, difference_limits<fp16>().largest);
}

// The defaults. A quick run on a GPU uses few sizes, since a kernel takes up to a second to compile, and
// skips fp16, which is as fast as bf16 on tensor cores.
static void choose_defaults(const ReportRun& run, SweepOptions& options) {
    const bool quick = run.options.quick, few = quick && !run.software();
    if (options.precisions.empty())
        options.precisions =
            few ? std::vector<std::string>{"fp32", "bf16"} : std::vector<std::string>{"fp32", "bf16", "fp16"};
    if (!options.sizes.empty()) return;
    if (few)
        options.sizes = {100, 500, 1000, 4096};
    else if (quick)
        options.sizes = {50, 100, 250, 500};
    else
        options.sizes = {50, 100, 250, 500, 1000, 1250, 1500, 1750, 2000, 2500, 4096, 8192};
}

static void measure(ReportRun& run, SweepOptions options) {
    choose_defaults(run, options);
    Sweep sweep = {run, options};
    make_tables(sweep);
    run.progress("device peaks");
    sweep.peaks = sweep_peaks(run);
    for (const std::string& precision : options.precisions)
        with_precision(precision, [&]<class Real>(Real) { measure_type<Real>(sweep); });
    sweep.rates.note = rates_note(sweep);
    run.tables.push_back(sweep.rates);
    run.plots.push_back({"matmul", "Square GEMMs", "size", "rate", "GEMM"});
    if (!run.pad) return;
    sweep.compared.note = compared_note(sweep);
    run.tables.push_back(sweep.compared);
    run.plots.push_back(
        {"matmul_compared", "Square GEMMs: speed-up of the GPU over the CPU", "size", "speed-up", "type"});
}

int main(int argc, char** argv) {
    SweepOptions options;
    return run_report_program(
        {.name = "matmul_sweep",
         .what = "Square GEMMs on the CPU and on the GPU: correctness, speed and crossover sizes.",
         .options = {{.name = "--sizes",
                      .help = "matrix sizes; default: 50 to 8192",
                      .values = &options.sizes,
                      .min = 1,
                      .max = 32768},
                     {.name = "--precision",
                      .help = "storage types; default: fp32,bf16,fp16, or fp32,bf16 for a quick run on a GPU",
                      .values = &options.precisions,
                      .allowed = {"fp32", "bf16", "fp16"}},
                     {.name = "--plant-error", .help = "", .values = &options.plant_error}},
         .measure = [&](ReportRun& run) { measure(run, options); }},
        argc, argv);
}
