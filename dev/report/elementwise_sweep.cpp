// Memory-bound operations on the CPU and on the GPU, by the layer functions that training calls: adding two
// tensors, GELU, and the fused residual + LayerNorm (rows of 768), from 10^3 to 10^9 elements.
//
//     build/elementwise_sweep [--device auto] [--sizes 1000,10000,...] [--precision fp32,bf16] [--quick]
//     [--json FILE]
//
// A wrong result ends the program with status 1.
#include <cmath>

#include "dev/report/crossover.h"
#include "dev/report/difference.h"
#include "dev/report/results.h"
#include "dev/report/sweep.h"
#include "llmc/base/precision.h"
#include "llmc/launchpad/memory.h"
#include "llmc/layers/gelu.h"
#include "llmc/layers/gradient_sum.h"
#include "llmc/layers/layernorm.h"
#include "llmc/run/run_plan.h"

static const int C = 768;
// Inputs repeat after this many elements (whole rows of C). So do the results, which are compared with one
// period computed by the CPU. It is not a power of two, so that an index overflow shows.
static const size_t PERIOD = 1365 * C;

static const char* const EMPTY_ROWS =
    "Empty rows: skipped, since they would take too long or too much memory. ";

enum Operation { ADD, GELU, RESIDUAL_LAYERNORM, NUM_OPERATIONS };
static const char* const operation_names[] = {"add", "GELU", "residual + LayerNorm"};
static const int arrays_read[] = {2, 1, 2}, arrays_written[] = {1, 1, 2};

struct SweepOptions {
    std::vector<double> sizes;
    std::vector<std::string> precisions = {"fp32", "bf16"};
};

struct Sweep {
    ReportRun& run;
    SweepOptions options;
    SweepPeaks peaks;
    Table rates, compared;  // rates: of one precision
    std::vector<std::string> crossovers;
};

// The operands and results of an operation on n elements, on the CPU (pad null) or the device. Results start
// as NaN.
template <class Real>
struct Arrays {
    Operation operation;
    size_t n;
    Memory memory;
    Real *inp1, *inp2 = nullptr, *out, *normed = nullptr, *weight = nullptr, *bias = nullptr;
    float *mean = nullptr, *rstd = nullptr;

    Arrays(Operation op, size_t elements, LaunchPad* pad) : operation(op), n(elements), memory(pad) {
        inp1 = input(n, 1);
        if (arrays_read[op] > 1) inp2 = input(n, 2);
        out = output(n);
        if (op != RESIDUAL_LAYERNORM) return;
        normed = output(n);
        weight = input(C, 3);
        bias = input(C, 4);
        mean = memory.allocate<float>(n / C, "means");
        rstd = memory.allocate<float>(n / C, "reciprocal standard deviations");
    }
    // Draws one period and copies it on the device.
    Real* input(size_t count, uint32_t seed) {
        Real* values = memory.allocate<Real>(count, "inputs");
        std::vector<Real> period(std::min(count, PERIOD));
        fill_random(period.data(), period.size(), seed);
        memory.upload(values, period.data(), period.size());
        for (size_t filled = period.size(); filled < count; filled += std::min(filled, count - filled))
            memory.copy(values + filled, values, std::min(filled, count - filled));
        return values;
    }
    Real* output(size_t count) {
        Real* values = memory.allocate<Real>(count, "results");
        const size_t bytes = (count * sizeof(Real) + 3) / 4 * 4;
        memory.pad ? memory.pad->fill(values, 0xffffffff, bytes) : void(memset(values, 0xff, bytes));
        return values;
    }
    void launch() {
        if (operation == ADD)
            gradient_sum<Real>(
                memory.pad,
                {.out = out, .inp = inp1, .own = inp2, .n = n, .stride = 0, .count = 2, .own_index = 1});
        if (operation == GELU) gelu_forward<Real>(memory.pad, {.out = out, .inp = inp1, .n = n});
        if (operation == RESIDUAL_LAYERNORM)
            layernorm_forward<Real>(memory.pad, {.out = normed,
                                                 .mean = mean,
                                                 .rstd = rstd,
                                                 .inp = inp1,
                                                 .added = inp2,
                                                 .sum = out,
                                                 .weight = weight,
                                                 .bias = bias,
                                                 .num_rows = int(n / C),
                                                 .C = C});
    }
};

// Adds the differences between an array on the device and the period that the CPU computed.
template <class Real>
static void compare(Difference& difference, const Memory& device, const Real* got, size_t n,
                    const Real* period) {
    const double scale = root_mean_square(period, std::min(n, PERIOD));
    std::vector<Real> piece(std::min(n, PERIOD));
    for (size_t first = 0; first < n; first += PERIOD) {
        const size_t count = std::min(PERIOD, n - first);
        device.download(piece.data(), got + first, count);
        add_difference(difference, piece.data(), period, count, scale);
    }
}

struct SizeTimes {
    double cpu = NOT_MEASURED;
    GpuSeconds gpu = {NOT_MEASURED, NOT_MEASURED};
    double relative = NOT_MEASURED, largest = NOT_MEASURED;  // errors
};

template <class Real>
static void measure_cpu(Sweep& sweep, Operation operation, size_t n, SizeTimes& times) {
    Arrays<Real> arrays(operation, n, nullptr);
    times.cpu = cpu_seconds([&] { arrays.launch(); }, sweep.run.options.quick ? 0.01 : 0.1);
}

template <class Real>
static void measure_gpu(Sweep& sweep, Operation operation, size_t n, SizeTimes& times) {
    Arrays<Real> arrays(operation, n, sweep.run.pad.get());
    times.gpu = gpu_seconds(
        *sweep.run.pad, [&] { arrays.launch(); }, sweep.run.options.quick);
    Arrays<Real> reference(operation, std::min(n, PERIOD), nullptr);
    reference.launch();
    Difference difference;
    compare(difference, arrays.memory, arrays.out, n, reference.out);
    if (arrays.normed) compare(difference, arrays.memory, arrays.normed, n, reference.normed);
    times.relative = difference.relative();
    times.largest = difference.largest;
    const std::string what =
        format_string("%s %s of %zu elements", real_name<Real>(), operation_names[operation], n);
    check_limit(what, "relative L2 error", times.relative, difference_limits<Real>().relative);
    check_limit(what, "largest error of an element", times.largest, difference_limits<Real>().largest);
}

static double memory_bytes(Operation operation, size_t n, size_t element_bytes) {
    return double(arrays_read[operation] + arrays_written[operation]) * double(n) * double(element_bytes);
}

// Memory traffic that caches may absorb: memory bandwidth does not limit it.
const double CACHED_BYTES = 128 << 20;

template <class Real>
static void add_rows(Sweep& sweep, Operation operation, double size, size_t n, const SizeTimes& times) {
    const double bytes = memory_bytes(operation, n, sizeof(Real));
    const std::string name = operation_names[operation], what = name + ", " + real_name<Real>();
    auto add_rate = [&](const char* where, double seconds, double peak) {
        sweep.rates.rows.push_back(
            {name + where, int64_t(size), number(1e6 * seconds), number(bytes / seconds / 1e9),
             bytes < CACHED_BYTES ? Cell(nullptr) : number(100 * bytes / seconds / peak)});
        if (!(seconds > 0)) sweep.rates.note = EMPTY_ROWS;
    };
    add_rate(", CPU", times.cpu, sweep.peaks.cpu.copy_rate);
    if (!sweep.run.pad) return;
    add_rate(", GPU", times.gpu.queued, sweep.peaks.gpu.copy_rate);
    sweep.compared.rows.push_back({what, int64_t(size), number(1e6 * times.cpu),
                                   number(1e6 * times.gpu.queued), number(1e6 * times.gpu.synchronous),
                                   number(times.cpu / times.gpu.queued), number(times.relative),
                                   number(times.largest)});
}

// Whether the arrays fit into the given share of the free memory.
static bool fits(const LaunchPad* pad, double bytes, double largest, double share) {
    const MemoryRoom room = memory_room(pad);
    return bytes <= share * double(room.bytes) && largest <= double(room.largest);
}

template <class Real>
static void measure_operation(Sweep& sweep, Operation operation) {
    const bool quick = sweep.run.options.quick;
    TimeBudget cpu_budget = {quick ? 0.1 : 2.0}, gpu_budget = {quick ? 0.1 : 1.0};
    // the host takes too long to fill larger arrays in a quick run
    const double most_on_cpu = quick ? 3e8 : std::numeric_limits<double>::infinity();
    std::vector<TimePair> queued, synchronous;
    for (const double size : sweep.options.sizes) {
        size_t n = size_t(size);
        if (operation == RESIDUAL_LAYERNORM) n = std::max<size_t>(1, n / C) * C;
        const double bytes = memory_bytes(operation, n, sizeof(Real)), largest = double(n) * sizeof(Real);
        const bool cpu =
            bytes <= most_on_cpu && cpu_budget.allows(bytes) && fits(nullptr, bytes, largest, 0.5);
        const bool gpu =
            sweep.run.pad && gpu_budget.allows(bytes) && fits(sweep.run.pad.get(), bytes, largest, 0.8);
        SizeTimes times;
        const auto measure_it = [&] {
            if (cpu) measure_cpu<Real>(sweep, operation, n, times);
            if (gpu) measure_gpu<Real>(sweep, operation, n, times);
        };
        if (!sweep.run.step(
                format_string("%s, %s, %g elements", operation_names[operation], real_name<Real>(), size),
                size, measure_it))
            continue;
        if (cpu) cpu_budget.took(bytes, times.cpu);
        if (gpu) gpu_budget.took(bytes, times.gpu.queued);
        add_rows<Real>(sweep, operation, size, n, times);
        queued.push_back({size, times.gpu.queued, times.cpu});
        synchronous.push_back({size, times.gpu.synchronous, times.cpu});
    }
    sweep.crossovers.push_back(format_string(
        "%s, %s: crossover size queued: %s; synchronous: %s", operation_names[operation], real_name<Real>(),
        crossover_text(find_crossover(queued)).c_str(), crossover_text(find_crossover(synchronous)).c_str()));
}

static Table rates_table(const std::string& precision) {
    return {.name = "elementwise_" + precision,
            .title = "Elementwise operations in " + precision,
            .columns = {{.name = "operation", .key = true},
                        {.name = "elements", .key = true},
                        {.name = "time", .unit = "us", .better = Better::less},
                        {.name = "rate", .unit = "GB/s", .better = Better::more},
                        {.name = "of copy bandwidth", .unit = "%", .digits = 3}}};
}

static Table compared_table() {
    return {.name = "elementwise_compared",
            .title = "Elementwise operations: GPU and CPU",
            .columns = {{.name = "operation", .key = true},
                        {.name = "elements", .key = true},
                        {.name = "CPU", .unit = "us", .better = Better::less},
                        {.name = "GPU, queued", .unit = "us", .better = Better::less},
                        {.name = "GPU, synchronous", .unit = "us", .better = Better::less},
                        {.name = "speed-up", .better = Better::more, .digits = 3},
                        {.name = "relative error", .digits = 2},
                        {.name = "largest error", .digits = 2}}};
}

static std::string rates_note(const Sweep& sweep) {
    std::string note = format_string(
        "The rate counts each input read once and each output written once. Copy bandwidth, read + write, of "
        "arrays larger than every cache: CPU in place %.3g GB/s",
        sweep.peaks.cpu.copy_rate / 1e9);
    if (sweep.run.pad) note += format_string(", GPU %.3g GB/s", sweep.peaks.gpu.copy_rate / 1e9);
    return note +
           format_string(
               ". Arrays of less than %.0f MiB together have no share of it, since they stay in caches. "
               "Residual + LayerNorm uses whole rows of %d.",
               CACHED_BYTES / (1 << 20), C);
}

template <class Real>
static void measure_type(Sweep& sweep) {
    sweep.rates = rates_table(real_name<Real>());
    for (int operation = 0; operation < NUM_OPERATIONS; operation++)
        measure_operation<Real>(sweep, Operation(operation));
    sweep.rates.note += rates_note(sweep);
    sweep.run.plots.push_back({sweep.rates.name, sweep.rates.title, "elements", "rate", "operation"});
    sweep.run.tables.push_back(sweep.rates);
}

static std::vector<double> default_sizes(const ReportRun& run) {
    if (!run.options.quick) return {1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9};
    if (run.software()) return {1e3, 1e4, 1e5};
    return {1e4, 1e6, 1e8};  // bound by launch overhead, caches and memory
}

static void measure(ReportRun& run, SweepOptions options) {
    if (options.sizes.empty()) options.sizes = default_sizes(run);
    Sweep sweep = {run, options};
    sweep.compared = compared_table();
    run.progress("device peaks");
    sweep.peaks = sweep_peaks(run);
    for (const std::string& precision : options.precisions)
        with_precision(precision, [&]<class Real>(Real) { measure_type<Real>(sweep); });
    if (!run.pad) return;
    for (const std::string& text : sweep.crossovers) sweep.compared.note += text + ". ";
    sweep.compared.note +=
        "Queued: GPU time per launch in a queue of dependent launches. Synchronous: wall-clock time to "
        "launch "
        "once, submit and wait. Errors: the GPU's results compared with the CPU's, every element.";
    run.tables.push_back(sweep.compared);
    run.plots.push_back({"elementwise_compared", "Elementwise operations: speed-up of the GPU over the CPU",
                         "elements", "speed-up", "operation"});
}

int main(int argc, char** argv) {
    SweepOptions options;
    return run_report_program(
        {.name = "elementwise_sweep",
         .what = "Memory-bound operations on the CPU and on the GPU: bandwidth and crossover sizes.",
         .options = {{.name = "--sizes",
                      .help = "numbers of elements; default: 1e3 to 1e9",
                      .values = &options.sizes,
                      .min = 1,
                      .max = 1e11},
                     {.name = "--precision",
                      .help = "storage types",
                      .values = &options.precisions,
                      .allowed = {"fp32", "bf16", "fp16"}}},
         .measure = [&](ReportRun& run) { measure(run, options); }},
        argc, argv);
}
