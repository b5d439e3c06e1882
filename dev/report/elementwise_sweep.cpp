// What is limited by memory, on the CPU and on the GPU, by the layer functions that training calls: adding
// two tensors, GELU, and residual + layernorm in one (rows of 768), from 10^3 to 10^9 elements.
//
//     build/elementwise_sweep [--device auto] [--sizes 1000,10000,...] [--precision fp32,bf16] [--quick]
//     [--json FILE]
//
// A result that is wrong ends the program with status 1.
#include <cmath>

#include "dev/report/crossover.h"
#include "dev/report/difference.h"
#include "dev/report/results.h"
#include "dev/report/sweep.h"
#include "llmc/gelu.h"
#include "llmc/memory.h"
#include "llmc/residual.h"
#include "llmc/run_plan.h"

static const int C = 768;
// Inputs repeat after so many elements (whole rows of C): results do, too, and are compared with one period
// that the CPU computes. No power of two, so that an index which overflows is seen.
static const size_t PERIOD = 1365 * C;

static const char* const LEFT_OUT =
    "Empty rows were left out: they would have taken too long, or too much memory. ";

enum Operation { ADD, GELU, RESIDUAL_LAYERNORM, NUM_OPERATIONS };
static const char* const operation_names[] = {"add", "GELU", "residual + layernorm"};
static const int arrays_read[] = {2, 1, 2}, arrays_written[] = {1, 1, 2};

struct SweepOptions {
    std::vector<double> sizes;
    std::vector<std::string> precisions = {"fp32", "bf16"};
};

struct Sweep {
    ReportRun& run;
    SweepOptions options;
    SweepPeaks peaks;
    Table rates, compared;  // the former of one precision
    std::vector<std::string> crossovers;
};

// The arrays of an operation on n elements, on the CPU (pad null) or the device; outputs start as NaN.
template <class T>
struct Arrays {
    Operation operation;
    size_t n;
    Memory memory;
    T *inp1, *inp2 = nullptr, *out, *normed = nullptr, *weight = nullptr, *bias = nullptr;
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
        rstd = memory.allocate<float>(n / C, "deviations");
    }
    // One period is drawn; the rest is copied where it lies.
    T* input(size_t count, uint32_t seed) {
        T* values = memory.allocate<T>(count, "inputs");
        std::vector<T> period(std::min(count, PERIOD));
        fill_random(period.data(), period.size(), seed);
        memory.upload(values, period.data(), period.size());
        for (size_t filled = period.size(); filled < count; filled += std::min(filled, count - filled))
            memory.copy(values + filled, values, std::min(filled, count - filled));
        return values;
    }
    T* output(size_t count) {
        T* values = memory.allocate<T>(count, "results");
        const size_t bytes = (count * sizeof(T) + 3) / 4 * 4;
        memory.pad ? memory.pad->fill(values, 0xffffffff, bytes) : void(memset(values, 0xff, bytes));
        return values;
    }
    void launch() {
        if (operation == ADD) residual_forward(memory.pad, out, inp1, inp2, n);
        if (operation == GELU) gelu_forward(memory.pad, out, inp1, n);
        if (operation == RESIDUAL_LAYERNORM)
            fused_residual_layernorm_forward(memory.pad, out, normed, mean, rstd, inp1, inp2, weight, bias,
                                             int(n / C), C);
    }
};

// Adds the differences of an array, on the device, from the period that the CPU computed.
template <class T>
static void compare(Difference& difference, const Memory& device, const T* got, size_t n, const T* period) {
    const double scale = root_mean_square(period, std::min(n, PERIOD));
    std::vector<T> piece(std::min(n, PERIOD));
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

template <class T>
static void measure_cpu(Sweep& sweep, Operation operation, size_t n, SizeTimes& times) {
    Arrays<T> arrays(operation, n, nullptr);
    times.cpu = cpu_seconds([&] { arrays.launch(); }, sweep.run.options.quick ? 0.01 : 0.1);
}

template <class T>
static void measure_gpu(Sweep& sweep, Operation operation, size_t n, SizeTimes& times) {
    Arrays<T> arrays(operation, n, sweep.run.pad.get());
    times.gpu = gpu_seconds(
        *sweep.run.pad, [&] { arrays.launch(); }, sweep.run.options.quick);
    Arrays<T> reference(operation, std::min(n, PERIOD), nullptr);
    reference.launch();
    Difference difference;
    compare(difference, arrays.memory, arrays.out, n, reference.out);
    if (arrays.normed) compare(difference, arrays.memory, arrays.normed, n, reference.normed);
    times.relative = difference.relative();
    times.largest = difference.largest;
    const std::string what =
        format_string("%s %s of %zu elements", real_name<T>(), operation_names[operation], n);
    check_limit(what, "relative L2 error", times.relative, difference_limits<T>().relative);
    check_limit(what, "largest error of an element", times.largest, difference_limits<T>().largest);
}

static double bytes_moved(Operation operation, size_t n, size_t element_bytes) {
    return double(arrays_read[operation] + arrays_written[operation]) * double(n) * double(element_bytes);
}

template <class T>
static void add_rows(Sweep& sweep, Operation operation, double size, size_t n, const SizeTimes& times) {
    const double bytes = bytes_moved(operation, n, sizeof(T));
    const std::string name = operation_names[operation], what = name + ", " + real_name<T>();
    auto add_rate = [&](const char* where, double seconds, double peak) {
        sweep.rates.rows.push_back({name + where, int64_t(size), number(1e6 * seconds),
                                    number(bytes / seconds / 1e9), number(100 * bytes / seconds / peak)});
        if (!(seconds > 0)) sweep.rates.note = LEFT_OUT;
    };
    add_rate(", CPU", times.cpu, sweep.peaks.cpu.copy_rate);
    if (!sweep.run.pad) return;
    add_rate(", GPU", times.gpu.in_a_row, sweep.peaks.gpu.copy_rate);
    sweep.compared.rows.push_back({what, int64_t(size), number(1e6 * times.cpu),
                                   number(1e6 * times.gpu.in_a_row), number(1e6 * times.gpu.single),
                                   number(times.cpu / times.gpu.in_a_row), number(times.relative),
                                   number(times.largest)});
}

// Whether the arrays take at most `share` of the memory, beside what else is in use there.
static bool fits(const LaunchPad* pad, double bytes, double largest, double share) {
    const MemoryRoom room = memory_room(pad);
    return bytes <= share * double(room.bytes) && largest <= double(room.largest);
}

template <class T>
static void measure_operation(Sweep& sweep, Operation operation) {
    const bool quick = sweep.run.options.quick;
    TimeBudget cpu_budget = {quick ? 0.1 : 2.0}, gpu_budget = {quick ? 0.1 : 1.0};
    // to make larger arrays takes the host too long for a quick run
    const double most_on_cpu = quick ? 3e8 : std::numeric_limits<double>::infinity();
    std::vector<Race> in_a_row, single;
    for (const double size : sweep.options.sizes) {
        size_t n = size_t(size);
        if (operation == RESIDUAL_LAYERNORM) n = std::max<size_t>(1, n / C) * C;
        const double bytes = bytes_moved(operation, n, sizeof(T)), largest = double(n) * sizeof(T);
        const bool cpu =
            bytes <= most_on_cpu && cpu_budget.allows(bytes) && fits(nullptr, bytes, largest, 0.5);
        const bool gpu =
            sweep.run.pad && gpu_budget.allows(bytes) && fits(sweep.run.pad.get(), bytes, largest, 0.8);
        SizeTimes times;
        const auto measure_it = [&] {
            if (cpu) measure_cpu<T>(sweep, operation, n, times);
            if (gpu) measure_gpu<T>(sweep, operation, n, times);
        };
        if (!sweep.run.step(
                format_string("%s, %s, %g elements", operation_names[operation], real_name<T>(), size), size,
                measure_it))
            continue;
        if (cpu) cpu_budget.took(bytes, times.cpu);
        if (gpu) gpu_budget.took(bytes, times.gpu.in_a_row);
        add_rows<T>(sweep, operation, size, n, times);
        in_a_row.push_back({size, times.gpu.in_a_row, times.cpu});
        single.push_back({size, times.gpu.single, times.cpu});
    }
    sweep.crossovers.push_back(format_string(
        "%s, %s, one after another: %s; a single one, with submission and waiting: %s",
        operation_names[operation], real_name<T>(), crossover_text(find_crossover(in_a_row)).c_str(),
        crossover_text(find_crossover(single)).c_str()));
}

static Table rates_table(const std::string& precision) {
    return {.name = "elementwise_" + precision,
            .title = "Elementwise operations in " + precision,
            .columns = {{.name = "operation", .key = true},
                        {.name = "elements", .key = true},
                        {.name = "time", .unit = "us", .better = Better::less},
                        {.name = "rate", .unit = "GB/s", .better = Better::more},
                        {.name = "of copying", .unit = "%", .digits = 3}}};
}

static Table compared_table() {
    return {.name = "elementwise_compared",
            .title = "Elementwise operations, GPU and CPU compared",
            .columns = {{.name = "operation", .key = true},
                        {.name = "elements", .key = true},
                        {.name = "CPU", .unit = "us", .better = Better::less},
                        {.name = "GPU", .unit = "us", .better = Better::less},
                        {.name = "GPU, single", .unit = "us", .better = Better::less},
                        {.name = "speed-up", .better = Better::more, .digits = 3},
                        {.name = "relative error", .digits = 2},
                        {.name = "largest error", .digits = 2}}};
}

static std::string rates_note(const Sweep& sweep) {
    std::string note = format_string(
        "Each input read and each output written once, held against copying arrays past every cache: CPU "
        "%.3g GB/s",
        sweep.peaks.cpu.copy_rate / 1e9);
    if (sweep.run.pad) note += format_string(", GPU %.3g GB/s", sweep.peaks.gpu.copy_rate / 1e9);
    return note + format_string(
                      "; small arrays stay in the caches, which can make more than 100 %%. Residual + "
                      "layernorm takes whole rows of %d.",
                      C);
}

template <class T>
static void measure_type(Sweep& sweep) {
    sweep.rates = rates_table(real_name<T>());
    for (int operation = 0; operation < NUM_OPERATIONS; operation++)
        measure_operation<T>(sweep, Operation(operation));
    sweep.rates.note += rates_note(sweep);
    sweep.run.plots.push_back({sweep.rates.name, sweep.rates.title, "elements", "rate", "operation"});
    sweep.run.tables.push_back(sweep.rates);
}

static std::vector<double> usual_sizes(const ReportRun& run) {
    if (!run.options.quick) return {1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9};
    if (run.software()) return {1e3, 1e4, 1e5};
    return {1e4, 1e6, 1e8};  // what waits for launches, what fits into caches, and memory
}

static void measure(ReportRun& run, SweepOptions options) {
    if (options.sizes.empty()) options.sizes = usual_sizes(run);
    Sweep sweep = {run, options};
    sweep.compared = compared_table();
    run.progress("peaks of the device");
    sweep.peaks = measure_sweep_peaks(run.pad.get(), run.options.quick);
    for (const std::string& precision : options.precisions) {
        if (precision == "fp32") measure_type<float>(sweep);
        if (precision == "bf16") measure_type<bf16>(sweep);
        if (precision == "fp16") measure_type<fp16>(sweep);
    }
    if (!run.pad) return;
    for (const std::string& text : sweep.crossovers) sweep.compared.note += text + ". ";
    sweep.compared.note += "Errors are those of the GPU's results against the CPU's, of every element.";
    run.tables.push_back(sweep.compared);
    run.plots.push_back({"elementwise_compared", "Elementwise operations: how much quicker the GPU is",
                         "elements", "speed-up", "operation"});
}

int main(int argc, char** argv) {
    SweepOptions options;
    return run_report_program(
        "elementwise_sweep",
        "Elementwise operations on the CPU and on the GPU: how quick, from which size on.", argc, argv,
        [&](CLI::App& app) {
            app.add_option("--sizes", options.sizes, "elements; default: 1e3 to 1e9")
                ->delimiter(',')
                ->check(CLI::Range(1.0, 1e11));
            app.add_option("--precision", options.precisions, "of the numbers")
                ->delimiter(',')
                ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
                ->capture_default_str();
        },
        [&](ReportRun& run) { measure(run, options); });
}
