// The section of memory-bound operations: adding two tensors, GELU, and the fused residual + LayerNorm (rows
// of 768), from 10^3 to 10^9 elements. See sections.h.
#include <algorithm>

#include "dev/report/sections.h"
#include "dev/report/sweep.h"
#include "llmc/base/precision.h"
#include "llmc/kernels/operands.h"
#include "llmc/layers/gelu.h"
#include "llmc/layers/gradient_sum.h"
#include "llmc/layers/layernorm.h"
#include "llmc/run/run_plan.h"

static const int C = 768;
enum Operation { ADD, GELU, RESIDUAL_LAYERNORM, NUM_OPERATIONS };
static const char* const operation_names[] = {"add", "GELU", "residual + LayerNorm"};
static const int arrays_read[] = {2, 1, 2}, arrays_written[] = {1, 1, 2};

// Appends one run of an operation on n elements.
template <class Real>
static std::function<void()> prepare(Operation operation, size_t n, Operands& o) {
    Real *inp = o.input<Real>(n), *other = arrays_read[operation] > 1 ? o.input<Real>(n) : nullptr,
         *out = o.output<Real>(n);
    if (operation == ADD) {
        const GradientSum<Real> p = {
            .out = out, .inp = inp, .own = other, .n = n, .stride = 0, .count = 2, .own_index = 1};
        return [=, pad = o.pad] { gradient_sum(pad, p); };
    }
    if (operation == GELU)
        return [=, pad = o.pad] { gelu_forward<Real>(pad, {.out = out, .inp = inp, .n = n}); };
    const LayerNormForward<Real> p = {.out = o.output<Real>(n),
                                      .mean = o.output<float>(n / C),
                                      .rstd = o.output<float>(n / C),
                                      .inp = inp,
                                      .added = other,
                                      .sum = out,
                                      .weight = o.input<Real>(C),
                                      .bias = o.input<Real>(C),
                                      .num_rows = int(n / C),
                                      .C = C};
    return [=, pad = o.pad] { layernorm_forward(pad, p); };
}

static size_t elements(Operation operation, double size) {
    return operation == RESIDUAL_LAYERNORM ? std::max<size_t>(1, size_t(size) / C) * C : size_t(size);
}

// The GPU's results are compared with one period, computed by the CPU.
template <class Real>
static SizeTimes measure_size(ReportRun& run, Operation operation, double size, bool on_cpu, bool on_gpu) {
    const size_t n = elements(operation, size);
    SizeTimes times;
    times.errors.resize(2);
    if (on_cpu) {
        Operands host(nullptr);
        times.cpu = cpu_seconds(prepare<Real>(operation, n, host), run.quick ? 0.01 : 0.1);
    }
    if (!on_gpu) return times;
    Operands device(run.pad.get()), reference(nullptr);
    measure_gpu(times, *run.pad, prepare<Real>(operation, n, device), run.quick);
    prepare<Real>(operation, std::min(n, Operands::period), reference)();
    const Difference difference = device.compare(
        reference, format_string("%s %s of %zu elements", real_name<Real>(), operation_names[operation], n));
    times.errors = {difference.relative(), difference.largest};
    return times;
}

// Memory traffic that caches may absorb: memory bandwidth does not limit it.
const double CACHED_BYTES = 128 << 20;

template <class Real>
static Sweep operation_sweep(ReportRun& run, Operation operation) {
    const std::string name = operation_names[operation], type = real_name<Real>();
    Sweep sweep = {.name = name + ", " + type,
                   .table = "elementwise_" + type,
                   .key = name + ", " + type,
                   .cpu = name + ", CPU",
                   .gpu = name + ", GPU",
                   .compared = "elementwise_compared",
                   .seconds_per_unit = 1e-6,
                   .work_per_unit = 1e9,
                   .cpu_budget = {run.quick ? 0.1 : 2.0},
                   .gpu_budget = {run.quick ? 0.1 : 1.0}};
    const auto bytes_of = [=](double size) {
        const int arrays = arrays_read[operation] + arrays_written[operation];
        return double(arrays) * double(elements(operation, size)) * sizeof(Real);
    };
    sweep.work = bytes_of;
    sweep.peak = [=, &run](double size, bool on_gpu) {
        return bytes_of(size) < CACHED_BYTES ? NOT_MEASURED
                                             : (on_gpu ? run.peaks.gpu : run.peaks.cpu).copy_rate;
    };
    sweep.fits = [=, &run](double size, bool on_gpu) {
        const double bytes = bytes_of(size), largest = double(elements(operation, size)) * sizeof(Real);
        const MemoryRoom room = memory_room(on_gpu ? run.pad.get() : nullptr);
        if (!on_gpu && run.quick && bytes > 3e8) return false;  // the host takes too long to fill them
        return bytes <= (on_gpu ? 0.8 : 0.5) * double(room.bytes) && largest <= double(room.largest);
    };
    sweep.measure = [=, &run](double size, bool on_cpu, bool on_gpu) {
        return measure_size<Real>(run, operation, size, on_cpu, on_gpu);
    };
    return sweep;
}

static std::string rates_note(const ReportRun& run) {
    std::string note = format_string(
        "The rate counts each input read once and each output written once. Copy bandwidth, read + write, of "
        "arrays larger than every cache: CPU in place %.3g GB/s",
        run.peaks.cpu.copy_rate / 1e9);
    if (run.peaks.gpu.copy_rate > 0) note += format_string(", GPU %.3g GB/s", run.peaks.gpu.copy_rate / 1e9);
    return note +
           format_string(
               ". Arrays of less than %.0f MiB together have no share of it, since they stay in caches. "
               "Residual + LayerNorm uses whole rows of %d. Empty rows: too long, or too much memory.",
               CACHED_BYTES / (1 << 20), C);
}

static std::vector<double> default_sizes(const ReportRun& run) {
    if (!run.quick) return {1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9};
    if (run.software()) return {1e3, 1e4, 1e5};
    return {1e4, 1e6, 1e8};  // bound by launch overhead, caches and memory
}

Section elementwise_section(ReportRun& run, const SweepOptions& chosen) {
    SweepOptions options = chosen;
    if (options.precisions.empty()) options.precisions = {"fp32", "bf16"};
    if (options.sizes.empty()) options.sizes = default_sizes(run);
    Section section = {"Memory-bound operations on the CPU and on the GPU: bandwidth and crossover sizes.",
                       {}};
    for (const std::string& precision : options.precisions) {
        const std::string name = "elementwise_" + precision, title = "Elementwise operations in " + precision;
        section.tables.push_back({name,
                                  title,
                                  {{"operation", "", true},
                                   {"elements", "", true},
                                   {"time", "us", false, Better::less},
                                   {"rate", "GB/s", false, Better::more},
                                   {"of copy bandwidth", "%", false, Better::neither, 3}}});
        section.plots.push_back({name, title, "elements", "rate", "operation"});
        with_precision(precision, [&]<class Real>(Real) {
            for (int operation = 0; operation < NUM_OPERATIONS; operation++)
                add_sweep(section, run, operation_sweep<Real>(run, Operation(operation)), options.sizes);
        });
    }
    if (run.pad) {
        section.tables.push_back(compared_table("elementwise_compared", "Elementwise operations: GPU and CPU",
                                                {"operation", "elements"}, "us"));
        section.plots.push_back({"elementwise_compared",
                                 "Elementwise operations: speed-up of the GPU over the CPU", "elements",
                                 "speed-up", "operation"});
    }
    section.finish = [&run](std::vector<Table>& tables) {
        for (Table& table : tables)
            table.note =
                table.name == "elementwise_compared"
                    ? crossovers_text(table) +
                          "Queued: GPU time per launch in a queue of dependent launches. Synchronous: "
                          "wall-clock time to launch once, submit and wait. Errors: the GPU's results "
                          "compared with the CPU's, every element."
                    : rates_note(run);
    };
    return section;
}
