// The measured peaks of this machine: arithmetic in registers, cooperative matrices (tensor
// cores), memory bandwidth by size, shared memory, transfers between host and device, launch overhead; and
// the same of the CPU.
//
//     build/peak [--device 0] [--quick] [--json FILE]
//
// Benchmarks, --profile and MFU refer to measure_peaks() of llmc/launchpad/peak.h, which runs the same
// kernels in one configuration each. This program tries several configurations of cooperative matrices.
#include <algorithm>
#include <cstring>

#include "dev/report/launch_times.h"
#include "dev/report/peak_cpu.h"
#include "dev/report/report_shaders.h"
#include "dev/report/results.h"
#include "llmc/base/clock.h"
#include "llmc/launchpad/memory.h"

static int repeats(const ReportRun& run) { return run.options.quick ? 3 : 7; }

// The columns that add_spread() fills.
static std::vector<Column> spread_columns(const char* value, const char* unit, Better better) {
    return {{value, unit, false, better}, {"min", unit}, {"max", unit}, {"repetitions"}};
}

static void add_spread(std::vector<Cell>& row, const Spread& spread, double unit) {
    for (const double value : {spread.median, spread.least, spread.most})
        row.push_back(spread.count ? Cell(value / unit) : Cell());
    row.push_back(spread.count ? Cell(spread.count) : Cell());
}

static std::vector<Column> joined(std::vector<Column> columns, const std::vector<Column>& more) {
    columns.insert(columns.end(), more.begin(), more.end());
    return columns;
}

// --- arithmetic ---

struct BestLoad {
    MatrixLoad load;
    Spread rate;  // a count of 0: no cooperative matrices of the type
};

static const char* operands_name(int values) {
    return values == SCATTERED_OPERANDS ? "scattered"
           : values == UNIFORM_OPERANDS ? "uniform"
                                        : "powers of two";
}

// Compiling a kernel takes seconds on a software device and up to a second on a GPU, so quick runs try few.
// The number of iterations does not affect the kernel.
static std::vector<MatrixLoad> matrix_loads(const ReportRun& run) {
    const MatrixLoad usual = {4, 4, 4}, long_running = {4, 4, 4, 1024};
    const MatrixLoad uniform = {4, 4, 4, 256, UNIFORM_OPERANDS},
                     scattered = {4, 4, 4, 256, SCATTERED_OPERANDS};
    if (run.software()) return {usual, scattered};
    if (run.options.quick) return {usual, long_running, scattered};
    return {usual,     {2, 4, 4}, {8, 4, 4}, long_running, uniform,
            scattered, {4, 2, 4}, {8, 2, 4}, {4, 2, 2},    {8, 2, 2}};
}

// Measures every configuration of peak_matrix, one row each; returns the best.
template <class Real>
static BestLoad try_matrix_loads(ReportRun& run, Table& table) {
    BestLoad best;
    for (const MatrixLoad& load : matrix_loads(run)) {
        const uint32_t block = uint32_t(load.subgroups) * run.pad->limits().subgroup_size;
        if (!run.pad->limits().fragment<Real>() || block > run.pad->limits().max_block) continue;
        const std::string what = format_string(
            "cooperative matrices, %s: %d subgroups, %d accumulators, %s operands", real_name<Real>(),
            load.subgroups, load.down * load.across, operands_name(load.operands));
        Spread rate;
        if (!run.step(what, 0, [&] { rate = matrix_rate<Real>(*run.pad, load, repeats(run)); })) continue;
        std::vector<Cell> row = {real_name<Real>(), load.subgroups, load.down * load.across, load.iterations,
                                 operands_name(load.operands)};
        add_spread(row, rate, 1e12);
        table.rows.push_back(row);
        if (!best.rate.count || rate.median > best.rate.median) best = {load, rate};
    }
    return best;
}

template <class Real>
static void add_matrix_row(ReportRun& run, Table& arithmetic, Table& configurations) {
    const BestLoad best = try_matrix_loads<Real>(run, configurations);
    if (!best.rate.count && run.pad->limits().fragment<Real>()) return;  // skipped for lack of time
    std::vector<Cell> row = {"GPU", format_string("%s cooperative matrices", real_name<Real>())};
    add_spread(row, best.rate, 1e12);
    const FragmentShape shape = run.pad->limits().fragment<Real>();
    row.push_back(
        best.rate.count
            ? format_string("%ux%ux%u, %d accumulators/subgroup, %d subgroups/workgroup, %d iterations",
                            shape.M, shape.N, shape.K, best.load.down * best.load.across, best.load.subgroups,
                            best.load.iterations)
            : std::string("not supported by the device"));
    arithmetic.rows.push_back(row);
}

static void add_cpu_arithmetic(ReportRun& run, Table& table) {
    auto add = [&](const char* what, double (*rate)(double), const char* how) {
        Spread spread;
        const auto measure = [&] { spread = repeated(repeats(run), 2.0, [&] { return rate(0.1); }); };
        if (!run.step(format_string("%s, CPU", what), 0, measure)) return;
        std::vector<Cell> row = {"CPU", what};
        add_spread(row, spread.median > 0 ? spread : Spread(), 1e12);
        row.push_back(spread.median > 0 ? how : "not supported by the CPU");
        table.rows.push_back(row);
    };
    add("fp32 FMA", cpu_fma_rate, "all threads, registers");
    add("bf16 dot product", cpu_bf16_rate, "all threads, registers");
}

static void measure_arithmetic(ReportRun& run) {
    Table arithmetic = {
        "arithmetic", "Peak arithmetic rates, operands in registers",
        joined({{"where", "", true}, {"what", "", true}}, spread_columns("rate", "TFLOP/s", Better::more))};
    arithmetic.columns.push_back({"configuration"});
    Table configurations = {
        "matrix_configurations",
        "Cooperative matrices (tensor cores), by kernel configuration",
        joined({{"type", "", true},
                {"subgroups", "", true},
                {"accumulators", "", true},
                {"iterations", "", true},
                {"operands", "", true}},
               spread_columns("rate", "TFLOP/s", Better::more)),
        {},
        "subgroups: per workgroup; accumulators: fragments per subgroup; iterations: of 16 multiply-adds of "
        "fragments. On a device that lowers its clock at high power, scattered operand values, as in real "
        "data, are slower than powers of two. Uniform operands have one value in all components, which a "
        "compiler may keep in one register; that can be slower."};
    if (run.pad) {
        run.step("fp32 FMA, GPU", 0, [&] {
            std::vector<Cell> row = {"GPU", "fp32 FMA"};
            add_spread(row, fma_rate(*run.pad, repeats(run)), 1e12);
            row.push_back("16 accumulators/invocation, 256 invocations/workgroup");
            arithmetic.rows.push_back(row);
        });
        add_matrix_row<bf16>(run, arithmetic, configurations);
        add_matrix_row<fp16>(run, arithmetic, configurations);
    }
    add_cpu_arithmetic(run, arithmetic);
    arithmetic.note =
        "Medians of the repetitions. An FMA counts as two operations. Cooperative matrices (tensor cores): "
        "the best configuration.";
    run.tables.push_back(arithmetic);
    if (!configurations.rows.empty()) run.tables.push_back(configurations);
}

// --- memory ---

static std::vector<size_t> copy_sizes(const ReportRun& run, bool on_cpu) {
    const bool quick = run.options.quick;
    size_t most = run.pad ? large_copy_bytes(*run.pad) : quick ? 64 << 20 : 256 << 20;
    if (quick && on_cpu) most = std::min<size_t>(most, 256 << 20);  // the host takes too long to fill 1 GiB
    const size_t times = !quick ? 4 : run.software() ? 16 : 64;
    std::vector<size_t> sizes;
    for (size_t bytes = 64 << 10; bytes < most; bytes *= times) sizes.push_back(bytes);
    sizes.push_back(most);
    return sizes;
}

// Copy bandwidth by array size; the result for the largest size also goes into `bandwidth`.
static void measure_copies(ReportRun& run, Table& bandwidth) {
    Table table = {
        "copy_by_size",
        "Copy bandwidth (read + write), by array size",
        {{"where", "", true},
         {"bytes", "", true, Better::neither, 10},
         {"rate", "GB/s", false, Better::more},
         {"time", "us", false, Better::less},
         {"repetitions"}},
        {},
        "Medians. GPU: a kernel that copies 16 bytes per invocation, in dependent launches. Overlapped: "
        "groups "
        "of 16 independent launches, which for small arrays measures the caches. CPU: each thread copies its "
        "part repeatedly."};
    auto add = [&](const char* where, const auto& rate_of) {
        const std::vector<size_t> sizes = copy_sizes(run, !strcmp(where, "CPU"));
        for (const size_t bytes : sizes) {
            Spread rate;
            if (!run.step(format_string("copies, %s: %zu bytes", where, bytes), double(bytes),
                          [&] { rate = rate_of(bytes); }))
                continue;
            table.rows.push_back(
                {where, bytes, rate.median / 1e9, 2e6 * double(bytes) / rate.median, rate.count});
            if (bytes != sizes.back() || !strcmp(where, "GPU, overlapped")) continue;
            std::vector<Cell> row = {where, "copy (read + write)"};
            add_spread(row, rate, 1e9);
            row.push_back(format_string("arrays of %zu MiB", bytes >> 20));
            bandwidth.rows.push_back(row);
        }
    };
    if (run.pad) {
        add("GPU", [&](size_t bytes) { return copy_rate(*run.pad, bytes, false, repeats(run)); });
        add("GPU, overlapped", [&](size_t bytes) { return copy_rate(*run.pad, bytes, true, repeats(run)); });
    }
    add("CPU", [&](size_t bytes) {
        return repeated(repeats(run), 1.0,
                        [&] { return cpu_copy_rate(bytes, run.options.quick ? 5e-3 : 0.02); });
    });
    run.tables.push_back(table);
    run.plots.push_back({"copy_by_size", "Copy bandwidth (read + write)", "bytes", "rate", "where"});
}

// --- between host and device ---

static const char* transfer_way(MemoryMode mode) {
    switch (mode) {
        case MemoryMode::unified:
            return "copied by the host, since host and device share memory";
        case MemoryMode::staged:
            return "through a staging buffer";
        default:
            return "";
    }
}

// Seconds from the call of upload() or download() until the transfer is complete.
struct TransferTimes {
    Spread up, down;
};
static TransferTimes transfer_times(const ReportRun& run, size_t bytes) {
    LaunchPad& pad = *run.pad;
    Memory memory(&pad);
    char* there = memory.allocate<char>(bytes, "transfer");
    std::vector<char> here(bytes, 1);
    auto seconds = [&](auto transfer) {
        transfer();  // allocates the staging buffer
        return repeated(3 * repeats(run), run.options.quick ? 0.1 : 0.5, [&] {
            const double start = now();
            transfer();
            return now() - start;
        });
    };
    TransferTimes times;
    times.up = seconds([&] {
        pad.upload(there, here.data(), bytes);
        pad.commit(true);
    });
    times.down = seconds([&] { pad.download(here.data(), there, bytes); });
    return times;
}

static void measure_transfers(ReportRun& run, Table& bandwidth) {
    Table table = {
        "transfer_by_size",
        "Transfers between host and device, by size",
        {{"direction", "", true},
         {"bytes", "", true, Better::neither, 10},
         {"rate", "GB/s", false, Better::more},
         {"time", "us", false, Better::less},
         {"repetitions"}},
        {},
        std::string("Medians, wall clock, from the call until the transfer is complete. Memory mode: ") +
            memory_mode_name(run.pad->memory_mode()) + ": " + transfer_way(run.pad->memory_mode()) + "."};
    const size_t most = run.software() ? 16 << 20 : run.options.quick ? 64 << 20 : 256 << 20;
    for (size_t bytes = 4 << 10; bytes <= most; bytes *= run.options.quick ? 16 : 4) {
        TransferTimes times;
        if (!run.step(format_string("host and device: %zu bytes", bytes), double(bytes),
                      [&] { times = transfer_times(run, bytes); }))
            continue;
        for (const bool up : {true, false}) {
            const Spread& seconds = up ? times.up : times.down;
            const char* direction = up ? "host to device" : "device to host";
            table.rows.push_back({direction, bytes, double(bytes) / seconds.median / 1e9,
                                  seconds.median * 1e6, seconds.count});
            if (bytes * (run.options.quick ? 16 : 4) <= most) continue;
            const double b = double(bytes);  // the longest time is the lowest rate
            std::vector<Cell> row = {"GPU", direction};
            add_spread(row, {b / seconds.median, b / seconds.most, b / seconds.least, seconds.count}, 1e9);
            row.push_back(format_string("%zu MiB", bytes >> 20));
            bandwidth.rows.push_back(row);
        }
    }
    std::stable_sort(table.rows.begin(), table.rows.end(),
                     [](const auto& a, const auto& b) { return a[0].text() > b[0].text(); });
    run.tables.push_back(table);
    run.plots.push_back(
        {"transfer_by_size", "Transfer bandwidth between host and device", "bytes", "rate", "direction"});
}

// Bytes per second that all workgroups of the device together read from shared memory.
static Spread shared_rate(LaunchPad& pad, int repeats) {
    use_report_shaders();
    auto dispatch = [&](uint64_t groups, const PeakFmaArgs& args) {
        pad.dispatch("peak_shared", {groups}, {128}, args);
    };
    return group_rate(pad, {128, 8 * 16.0 * 128, pad.device().is_gpu() ? 2048 : 64, dispatch}, repeats);
}

static void measure_memory(ReportRun& run) {
    Table bandwidth = {
        "bandwidth", "Peak memory bandwidth",
        joined({{"where", "", true}, {"what", "", true}}, spread_columns("rate", "GB/s", Better::more))};
    bandwidth.columns.push_back({"configuration"});
    measure_copies(run, bandwidth);
    if (run.pad) {
        run.step("shared memory", 0, [&] {
            raise_clock(*run.pad);  // the clock fell during the CPU's measurements
            std::vector<Cell> row = {"GPU", "shared memory (read)"};
            add_spread(row, shared_rate(*run.pad, repeats(run)), 1e9);
            row.push_back("16 bytes per access, all workgroups together");
            bandwidth.rows.push_back(row);
        });
        measure_transfers(run, bandwidth);
    }
    run.step("memory, CPU", 0, [&] {
        std::vector<Cell> row = {"CPU", "in place (read + write)"};
        add_spread(row, repeated(repeats(run), 2.0, cpu_memory_rate), 1e9);
        row.push_back("128 MiB, all threads");
        bandwidth.rows.push_back(row);
    });
    bandwidth.note = "Medians of the repetitions.";
    run.tables.insert(run.tables.begin() + 1, bandwidth);  // the summary precedes its details
}

// --- launches ---

static void measure_launches(ReportRun& run) {
    Table table = {"launches",
                   "Launch overhead",
                   joined({{"what", "", true}}, spread_columns("time", "us", Better::less)),
                   {},
                   "Medians per dispatch. Each repetition makes a new recording, since identical recordings "
                   "differ by up "
                   "to 5 %. The section on the cost of a launch has details."};
    const int many = run.options.quick && run.software() ? 50 : 1000;
    auto add = [&](const std::string& what, const Spread& seconds) {
        std::vector<Cell> row = {what};
        add_spread(row, seconds, 1e-6);
        table.rows.push_back(row);
    };
    run.step("launches", 0, [&] {
        raise_clock(*run.pad);  // the clock fell during the transfers
        auto cost = [&](LaunchWay way, int count) {
            return launch_cost(*run.pad, way, count, 3 * repeats(run));
        };
        auto recorded_each_time = [&](LaunchWay way) {
            return repeated(3 * repeats(run), 2.0,
                            [&] { return launch_cost(*run.pad, way, many, 3).gpu.median; });
        };
        add("dependent dispatch, GPU", recorded_each_time(LaunchWay::replayed));
        add("independent dispatch, GPU", recorded_each_time(LaunchWay::replayed_independent));
        add("recording a dispatch, host", cost(LaunchWay::dependent, many).host);
        add("record, submit and wait", cost(LaunchWay::synchronous, 10).wall);
    });
    run.tables.push_back(table);
}

static void measure(ReportRun& run) {
    if (run.pad) raise_clock(*run.pad);
    measure_arithmetic(run);
    measure_memory(run);
    if (run.pad) measure_launches(run);
}

int main(int argc, char** argv) {
    return run_report_program(
        {.name = "peak", .what = "The measured peak rates of the device and of the CPU.", .measure = measure},
        argc, argv);
}
