// The section of square GEMMs: see sections.h.
#include "llmc/layers/matmul.h"
#include "dev/report/sections.h"
#include "dev/report/sweep.h"
#include "llmc/base/precision.h"
#include "llmc/kernels/check.h"
#include "llmc/kernels/operands.h"
#include "llmc/run/run_plan.h"

template <class Real>
static MatmulForward<Real> square_gemm(int size, Operands& o) {
    const size_t n = size_t(size) * size_t(size);
    return {.out = o.output<Real>(n),
            .inp = o.input<Real>(n),
            .weight = o.input<Real>(n),
            .num_rows = size,
            .C = size,
            .OC = size};
}

// Selects the fastest tile shape, as train_gpt2 does before training.
static void tune(LaunchPad& pad, const std::function<void()>& launch) {
    if (pad.device().type == DeviceType::software) return;
    pad.prepare(pad.dry_run(launch));
    pad.tune();
}

static const size_t CHECKED_ROWS = 13;  // of so many, one, where the CPU is slow: each tile has more rows

// Compares the result after all launches with the CPU's: all rows if that has computed them, else some. It
// started as NaN, so elements that no launch writes are found.
template <class Real>
static std::vector<Cell> checked(MatmulForward<Real> p, std::vector<Real> out, bool has_want) {
    const size_t n = size_t(p.C);
    std::vector<Real> inp, got;
    for (size_t row = 0; !has_want && row < n; row += CHECKED_ROWS) {
        inp.insert(inp.end(), p.inp + row * n, p.inp + (row + 1) * n);
        got.insert(got.end(), out.begin() + ptrdiff_t(row * n), out.begin() + ptrdiff_t((row + 1) * n));
    }
    if (!has_want) {
        p.inp = inp.data();
        p.num_rows = int(inp.size() / n);
        matmul_forward(nullptr, p);
        out = std::move(got);
    }
    Difference difference;
    add_difference(difference, out.data(), p.out, out.size(), root_mean_square(p.out, out.size()));
    check_difference<Real>(format_string("%s GEMM of size %d", real_name<Real>(), p.C), difference);
    return {difference.relative(), difference.largest};
}

template <class Real>
static SizeTimes measure_size(ReportRun& run, int size, bool on_cpu, bool on_gpu, bool wrong) {
    SizeTimes times;
    Operands host(nullptr);
    const MatmulForward<Real> want = square_gemm<Real>(size, host);
    if (on_cpu) times.cpu = cpu_seconds([&] { matmul_forward(nullptr, want); }, run.quick ? 0.02 : 0.2);
    times.errors.resize(2);
    if (!on_gpu) return times;
    LaunchPad& pad = *run.pad;
    Operands device(&pad);
    const MatmulForward<Real> p = square_gemm<Real>(size, device);
    const auto launch = [&] { matmul_forward(&pad, p); };
    if (!run.quick) tune(pad, launch);
    measure_gpu(times, pad, launch, run.quick);
    std::vector<Real> out(size_t(size) * size_t(size));
    pad.download(out.data(), p.out, out.size() * sizeof(Real));
    if (wrong) {
        const size_t row = size_t(size) / 2 / CHECKED_ROWS * CHECKED_ROWS;
        Real& chosen = out[row * size_t(size) + size_t(size) / 3];
        chosen = Real(float(chosen) + float(root_mean_square(out.data(), out.size())));
    }
    times.errors = checked(want, out, on_cpu);
    return times;
}

template <class Real>
static Sweep gemm_sweep(ReportRun& run, double wrong_at) {
    const std::string type = real_name<Real>();
    Sweep sweep = {.name = type + " GEMM",
                   .table = "matmul",
                   .key = type,
                   .cpu = type + " CPU",
                   .gpu = type + " GPU",
                   .compared = "matmul_compared",
                   .seconds_per_unit = 1e-3,
                   .work_per_unit = 1e12,
                   .cpu_budget = {run.quick ? 0.1 : 5.0},
                   .gpu_budget = {run.quick        ? 0.3
                                  : run.software() ? 1.0
                                                   : 3.0},
                   .work = [](double size) { return 2 * size * size * size; }};
    sweep.peak = [&run](double, bool on_gpu) {
        return gemm_peak<Real>(on_gpu ? run.peaks.gpu : run.peaks.cpu);
    };
    sweep.fits = [&run](double size, bool on_gpu) {
        const uint64_t bytes = uint64_t(sizeof(Real) * size * size);
        return memory_room(nullptr).holds({5 * bytes, bytes, ""}) &&
               (!on_gpu || memory_room(run.pad.get()).holds({4 * bytes, bytes, ""}));
    };
    sweep.measure = [&run, wrong_at](double size, bool on_cpu, bool on_gpu) {
        return measure_size<Real>(run, int(size), on_cpu, on_gpu, size == wrong_at);
    };
    return sweep;
}

static std::string rates_note(const ReportRun& run, bool gpu) {
    const Peaks &cpu = run.peaks.cpu, &device = run.peaks.gpu;
    std::string note = format_string(
        "out = inp weight^T by matmul_forward, with the operands in the memory of the device. GPU: time per "
        "GEMM in a queue of many. Empty rows: too long, or too much memory. Peaks: CPU %.3g TFLOP/s in fp32, "
        "%.3g in bf16",
        gemm_peak<float>(cpu) / 1e12, gemm_peak<bf16>(cpu) / 1e12);
    if (gpu)
        note += format_string("; GPU %.3g in fp32, %.3g in bf16, %.3g in fp16 (a software device: the CPU's)",
                              gemm_peak<float>(device) / 1e12, gemm_peak<bf16>(device) / 1e12,
                              gemm_peak<fp16>(device) / 1e12);
    return note + ".";
}

static std::string compared_note() {
    std::string limits;
    for (const std::string& name : precision_names())
        with_precision(name, [&]<class Real>(Real) {
            const DifferenceLimits of = difference_limits<Real>();
            limits += format_string("; %s %.2g, %.2g", real_name<Real>(), of.relative, of.largest);
        });
    return "Queued: GPU time per GEMM in a queue of dependent launches. Synchronous: wall-clock time to "
           "launch "
           "one, submit and wait. Errors: the GPU's result compared with the CPU's, in every 13th row if the "
           "CPU had no time for more. Limits of the relative and the largest error" +
           limits + ".";
}

// A quick run on a GPU uses few sizes, since a kernel takes up to a second to compile, and skips fp16, which
// is as fast as bf16 on tensor cores.
static SweepOptions with_defaults(const ReportRun& run, SweepOptions options) {
    const bool few = run.quick && !run.software();
    if (options.precisions.empty()) options.precisions = precision_names();
    if (few && options.precisions.size() == 3) options.precisions.pop_back();
    if (!options.sizes.empty()) return options;
    if (few)
        options.sizes = {100, 500, 1000, 4096};
    else if (run.quick)
        options.sizes = {50, 100, 250, 500};
    else
        options.sizes = {50, 100, 250, 500, 1000, 1250, 1500, 1750, 2000, 2500, 4096, 8192};
    return options;
}

Section matmul_section(ReportRun& run, const SweepOptions& chosen) {
    const SweepOptions options = with_defaults(run, chosen);
    Section section = {"Square GEMMs on the CPU and on the GPU: correctness, speed and crossover sizes.", {}};
    section.tables.push_back({"matmul",
                              "Square GEMMs",
                              {{"GEMM", "", true},
                               {"size", "", true},
                               {"time", "ms", false, Better::less},
                               {"rate", "TFLOP/s", false, Better::more},
                               {"of peak", "%", false, Better::neither, 3}}});
    section.plots.push_back({"matmul", "Square GEMMs", "size", "rate", "GEMM"});
    if (run.pad) {
        section.tables.push_back(
            compared_table("matmul_compared", "Square GEMMs: GPU and CPU", {"type", "size"}, "ms"));
        section.plots.push_back({"matmul_compared", "Square GEMMs: speed-up of the GPU over the CPU", "size",
                                 "speed-up", "type"});
    }
    for (const std::string& precision : options.precisions)
        with_precision(precision, [&]<class Real>(Real) {
            add_sweep(section, run, gemm_sweep<Real>(run, options.wrong_at), options.sizes);
        });
    section.finish = [&run, gpu = run.pad != nullptr](std::vector<Table>& tables) {
        tables[0].note = rates_note(run, gpu);
        if (gpu) tables[1].note = crossovers_text(tables[1]) + compared_note();
    };
    return section;
}
