// Square products on the CPU and on the GPU, by the layer function that training calls (matmul_forward): are
// they equal, how quick are they, and from which size on is the GPU worth it?
//
//     build/matmul_sweep [--device auto] [--sizes 50,100,...] [--precision fp32,bf16,fp16] [--quick] [--json
//     FILE]
//
// A result that is wrong ends the program with status 1.
#include "dev/report/crossover.h"
#include "dev/report/matmul_check.h"
#include "dev/report/results.h"
#include "dev/report/sweep.h"
#include "llmc/matmul.h"
#include "llmc/matmul_matrix.h"
#include "llmc/memory.h"
#include "llmc/run_plan.h"

struct SweepOptions {
    std::vector<int> sizes;
    std::vector<std::string> precisions;  // empty: by quick, as the sizes
    int plant_error = 0;  // for tests: at this size one element of the GPU's result is made wrong
};

struct Sweep {
    ReportRun& run;
    SweepOptions options;
    SweepPeaks peaks;
    Table rates, compared;
    std::vector<std::string> crossovers;
    bool left_out = false;
};

// One size: seconds on either side, NaN where it was left out.
struct SizeTimes {
    double cpu = NOT_MEASURED;
    GpuSeconds gpu = {NOT_MEASURED, NOT_MEASURED};
    MatmulErrors errors = {NOT_MEASURED, NOT_MEASURED, NOT_MEASURED, 0};
};

// The operands of one product of N x N, freed with the object: on the host, and on the device where there is
// one.
template <class T>
struct Product {
    int N;
    size_t n;
    Memory host{nullptr}, device;
    T *inp, *weight, *out = nullptr, *want = nullptr;  // on the host
    T *gpu_inp = nullptr, *gpu_weight = nullptr, *gpu_out = nullptr;
    float* scratch = nullptr;

    Product(int size, bool cpu, LaunchPad* pad) : N(size), n(size_t(size) * size), device(pad) {
        inp = host.allocate<T>(n, "inputs");
        weight = host.allocate<T>(n, "weights");
        if (cpu) want = host.allocate<T>(n, "the CPU's result");
        fill_random(inp, n, 1);
        fill_random(weight, n, 2);
        if (!pad) return;
        out = host.allocate<T>(n, "the GPU's result");
        gpu_inp = device.allocate<T>(n, "inputs");
        gpu_weight = device.allocate<T>(n, "weights");
        gpu_out = device.allocate<T>(n, "result");
        if (const size_t floats = matmul_forward_scratch<T>(pad, N, N, N))
            scratch = device.allocate<float>(floats, "scratch");
        device.upload(gpu_inp, inp, n);
        device.upload(gpu_weight, weight, n);
    }
    void run_on_cpu() { matmul_forward<T>(nullptr, want, inp, weight, nullptr, N, N, N); }
    void run_on_gpu() {
        matmul_forward<T>(device.pad, gpu_out, gpu_inp, gpu_weight, nullptr, N, N, N, scratch);
    }
};

// As train_gpt2 does before it trains: which tiles suit the matrix cores.
template <class T>
static void measure_product_tiles(LaunchPad& pad, int N) {
    if (pad.device().type == DeviceType::software || !on_matrix_cores<T>(pad, N, N)) return;
    const auto products = unmeasured_tiles<T>(pad, {forward5_product(N, N, N, EPILOGUE_BIAS)});
    if (!products.empty()) measure_tiles<T>(pad, products);
}

template <class T>
static bool fits(const LaunchPad* pad, int N, int arrays) {
    const uint64_t bytes = sizeof(T) * uint64_t(N) * uint64_t(N);
    return memory_room(pad).holds({bytes * uint64_t(arrays + 1), bytes, ""});
}

// The result after all launches: it began as NaN, so that what no launch writes is found, too.
template <class T>
static MatmulErrors checked(Product<T>& product, bool plant) {
    product.device.download(product.out, product.gpu_out, product.n);
    if (plant) plant_wrong_element(product.out, product.n);
    const MatmulErrors errors = matmul_errors(product.out, product.want, product.inp, product.weight,
                                              product.N, product.N, product.N);
    check_matmul<T>(errors, product.N, product.N, product.N);
    return errors;
}

template <class T>
static SizeTimes measure_size(Sweep& sweep, int N, bool cpu, bool gpu) {
    const bool quick = sweep.run.options.quick;
    LaunchPad* pad = gpu ? sweep.run.pad.get() : nullptr;
    SizeTimes times;
    if (gpu && !quick) measure_product_tiles<T>(*pad, N);
    Product<T> product(N, cpu, pad);
    if (cpu) times.cpu = cpu_seconds([&] { product.run_on_cpu(); }, quick ? 0.02 : 0.2);
    if (!gpu) return times;
    pad->fill(product.gpu_out, 0xffffffff, (product.n * sizeof(T) + 3) / 4 * 4);
    times.gpu = gpu_seconds(
        *pad, [&] { product.run_on_gpu(); }, quick);
    times.errors = checked(product, sweep.options.plant_error == N);
    return times;
}

template <class T>
static void add_rows(Sweep& sweep, int N, const SizeTimes& times) {
    const double flops = 2.0 * N * N * N;
    const std::string type = real_name<T>();
    auto add_rate = [&](const char* where, double seconds, const Peaks& peaks) {
        sweep.rates.rows.push_back({type + where, N, number(1e3 * seconds), number(flops / seconds / 1e12),
                                    number(100 * flops / seconds / product_peak<T>(peaks))});
        sweep.left_out |= !(seconds > 0);
    };
    add_rate(" CPU", times.cpu, sweep.peaks.cpu);
    if (!sweep.run.pad) return;
    add_rate(" GPU", times.gpu.in_a_row, sweep.peaks.gpu);
    sweep.compared.rows.push_back({type, N, number(1e3 * times.cpu), number(1e3 * times.gpu.in_a_row),
                                   number(1e3 * times.gpu.single), number(times.cpu / times.gpu.in_a_row),
                                   number(times.errors.relative), number(times.errors.largest),
                                   number(times.errors.checksum)});
}

template <class T>
static void measure_type(Sweep& sweep) {
    const bool quick = sweep.run.options.quick;
    TimeBudget cpu_budget = {quick ? 0.1 : 5.0}, gpu_budget = {quick                  ? 0.3
                                                               : sweep.run.software() ? 1.0
                                                                                      : 3.0};
    std::vector<Race> in_a_row, single;
    for (const int N : sweep.options.sizes) {
        const double flops = 2.0 * N * N * N;
        const bool cpu = cpu_budget.allows(flops) && fits<T>(nullptr, N, 4);
        const bool gpu = sweep.run.pad && gpu_budget.allows(flops) && fits<T>(nullptr, N, 4) &&
                         fits<T>(sweep.run.pad.get(), N, 3);
        SizeTimes times;
        const auto measure_it = [&] {
            if (cpu || gpu) times = measure_size<T>(sweep, N, cpu, gpu);
        };
        if (!sweep.run.step(format_string("%s products of size %d", real_name<T>(), N), N, measure_it))
            continue;
        if (cpu) cpu_budget.took(flops, times.cpu);
        if (gpu) gpu_budget.took(flops, times.gpu.in_a_row);
        add_rows<T>(sweep, N, times);
        in_a_row.push_back({double(N), times.gpu.in_a_row, times.cpu});
        single.push_back({double(N), times.gpu.single, times.cpu});
    }
    sweep.crossovers.push_back(format_string(
        "%s, one after another: %s; a single one, with submission and waiting: %s", real_name<T>(),
        crossover_text(find_crossover(in_a_row)).c_str(), crossover_text(find_crossover(single)).c_str()));
}

static void make_tables(Sweep& sweep) {
    sweep.rates = {.name = "matmul",
                   .title = "Square products",
                   .columns = {{.name = "product", .key = true},
                               {.name = "size", .key = true},
                               {.name = "time", .unit = "ms", .better = Better::less},
                               {.name = "rate", .unit = "TFLOP/s", .better = Better::more},
                               {.name = "of peak", .unit = "%", .digits = 3}}};
    sweep.compared = {.name = "matmul_compared",
                      .title = "Square products, GPU and CPU compared",
                      .columns = {{.name = "type", .key = true},
                                  {.name = "size", .key = true},
                                  {.name = "CPU", .unit = "ms", .better = Better::less},
                                  {.name = "GPU", .unit = "ms", .better = Better::less},
                                  {.name = "GPU, single", .unit = "ms", .better = Better::less},
                                  {.name = "speed-up", .better = Better::more, .digits = 3},
                                  {.name = "relative error", .digits = 2},
                                  {.name = "largest error", .digits = 2},
                                  {.name = "checksum error", .digits = 2}}};
}

static void write_notes(Sweep& sweep) {
    sweep.rates.note = format_string(
        "out = inp weight^T by matmul_forward, operands in the memory of the device; the time of one product "
        "among "
        "many. Peaks: CPU %.3g TFLOP/s in fp32, %.3g in bf16",
        product_peak<float>(sweep.peaks.cpu) / 1e12, product_peak<bf16>(sweep.peaks.cpu) / 1e12);
    if (sweep.run.pad)
        sweep.rates.note += format_string(
            "; GPU %.3g in fp32, %.3g in bf16, %.3g in fp16", product_peak<float>(sweep.peaks.gpu) / 1e12,
            product_peak<bf16>(sweep.peaks.gpu) / 1e12, product_peak<fp16>(sweep.peaks.gpu) / 1e12);
    if (sweep.run.pad && sweep.run.software()) sweep.rates.note += ", the CPU's: it runs there";
    sweep.rates.note += ".";
    if (sweep.left_out)
        sweep.rates.note += " Empty rows were left out: they would have taken too long, or too much memory.";
    for (const std::string& text : sweep.crossovers) sweep.compared.note += text + ". ";
    sweep.compared.note += format_string(
        "Errors are those of the GPU's result against the CPU's, of %d rows where the CPU did not compute "
        "all; the "
        "checksum is of every row, in fp64. Limits: %.2g of the whole, %.2g of an element or checksum in "
        "fp32; %.2g "
        "and %.2g in bf16; %.2g and %.2g in fp16.",
        MATMUL_CHECK_ROWS, difference_limits<float>().relative, difference_limits<float>().largest,
        difference_limits<bf16>().relative, difference_limits<bf16>().largest,
        difference_limits<fp16>().relative, difference_limits<fp16>().largest);
}

// What is measured where nothing else is asked for. A quick run on a GPU leaves out fp16, which is as fast as
// bf16 on matrix cores, and sizes: a kernel takes up to a second to compile.
static void choose_what(const ReportRun& run, SweepOptions& options) {
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
    choose_what(run, options);
    Sweep sweep = {run, options};
    make_tables(sweep);
    run.progress("peaks of the device");
    sweep.peaks = measure_sweep_peaks(run.pad.get(), run.options.quick);
    for (const std::string& precision : options.precisions) {
        if (precision == "fp32") measure_type<float>(sweep);
        if (precision == "bf16") measure_type<bf16>(sweep);
        if (precision == "fp16") measure_type<fp16>(sweep);
    }
    write_notes(sweep);
    run.tables.push_back(sweep.rates);
    run.plots.push_back({"matmul", "Square products", "size", "rate", "product"});
    if (!run.pad) return;
    run.tables.push_back(sweep.compared);
    run.plots.push_back(
        {"matmul_compared", "Products: how much quicker the GPU is", "size", "speed-up", "type"});
}

int main(int argc, char** argv) {
    SweepOptions options;
    return run_report_program(
        "matmul_sweep", "Square products on the CPU and on the GPU: equal, how quick, from which size on.",
        argc, argv,
        [&](CLI::App& app) {
            app.add_option("--sizes", options.sizes, "of the matrices; default: 50 to 8192")
                ->delimiter(',')
                ->check(CLI::Range(1, 32768));
            app.add_option("--precision", options.precisions,
                           "of the numbers; default: fp32, bf16 and fp16; quick on a GPU without fp16")
                ->delimiter(',')
                ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
            app.add_option("--plant-error", options.plant_error)->group("");
        },
        [&](ReportRun& run) { measure(run, options); });
}
