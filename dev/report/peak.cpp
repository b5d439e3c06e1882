// The section of peak rates: see sections.h.
#include <algorithm>
#include <cstring>

#include "dev/report/peak_cpu.h"
#include "dev/report/report_shaders.h"
#include "dev/report/sections.h"
#include "llmc/base/clock.h"
#include "llmc/launchpad/memory.h"

static int repeats(const ReportRun& run) { return run.quick ? 3 : 7; }

// --- tables ---

// Keys, then the columns that row_of() fills, then `last`.
static std::vector<Column> spread_columns(const std::vector<std::string>& keys, Column value,
                                          const char* last = nullptr) {
    std::vector<Column> columns;
    for (const std::string& key : keys) columns.push_back({key, "", true});
    columns.insert(columns.end(), {value, {"min", value.unit}, {"max", value.unit}, {"repetitions"}});
    if (last) columns.push_back({last});
    return columns;
}

static std::vector<Cell> row_of(std::vector<Cell> keys, const Spread& spread, double unit) {
    for (const double value : {spread.median, spread.least, spread.most})
        keys.push_back(spread.median > 0 ? Cell(value / unit) : Cell());
    keys.push_back(spread.median > 0 ? Cell(spread.count) : Cell());
    return keys;
}

static std::vector<Cell> row_of(std::vector<Cell> keys, const Spread& spread, double unit,
                                const std::string& last) {
    keys = row_of(keys, spread, unit);
    keys.push_back(last);
    return keys;
}

static Table size_table(const char* name, const char* title, const char* key, const std::string& note) {
    return {name,
            title,
            {{key, "", true},
             {"bytes", "", true, Better::neither, 10},
             {"rate", "GB/s", false, Better::more},
             {"time", "us", false, Better::less},
             {"repetitions"}},
            {},
            note};
}

static std::vector<Cell> size_row(const char* key, size_t bytes, double moved, const Spread& seconds) {
    return {key, bytes, moved / seconds.median / 1e9, 1e6 * seconds.median, seconds.count};
}

// --- arithmetic ---

static const char* operands_name(int values) {
    return values == SCATTERED_OPERANDS ? "scattered"
           : values == UNIFORM_OPERANDS ? "uniform"
                                        : "powers of two";
}

// Compiling a kernel takes seconds on a software device and up to a second on a GPU, so quick runs try few.
// The number of iterations does not affect the kernel.
static std::vector<MatrixLoad> matrix_loads(const ReportRun& run) {
    const MatrixLoad usual = {4, 4, 4}, long_running = {4, 4, 4, 1024},
                     uniform = {4, 4, 4, 256, UNIFORM_OPERANDS},
                     scattered = {4, 4, 4, 256, SCATTERED_OPERANDS};
    if (run.software()) return {usual, scattered};
    if (run.quick) return {usual, long_running, scattered};
    return {usual,     {2, 4, 4}, {8, 4, 4}, long_running, uniform,
            scattered, {4, 2, 4}, {8, 2, 4}, {4, 2, 2},    {8, 2, 2}};
}

// Every configuration, one row each, and the best one in the table of all rates.
template <class Real>
static Rows matrix_rows(ReportRun& run) {
    const Limits& limits = run.pad->limits();
    const FragmentShape shape = limits.fragment<Real>();
    Rows rows;
    Spread best;
    std::string how = "not supported by the device";
    for (const MatrixLoad& load : matrix_loads(run)) {
        if (!shape || uint32_t(load.subgroups) * limits.subgroup_size > limits.max_block) continue;
        const Spread rate = matrix_rate<Real>(*run.pad, load, repeats(run));
        rows.push_back(
            {"matrix_configurations", row_of({real_name<Real>(), load.subgroups, load.down * load.across,
                                              load.iterations, operands_name(load.operands)},
                                             rate, 1e12)});
        if (rate.median <= best.median) continue;
        best = rate;
        how = format_string("%ux%ux%u, %d accumulators/subgroup, %d subgroups/workgroup, %d iterations",
                            shape.M, shape.N, shape.K, load.down * load.across, load.subgroups,
                            load.iterations);
    }
    (std::is_same_v<Real, bf16> ? run.peaks.gpu.bf16_matrix_rate : run.peaks.gpu.fp16_matrix_rate) =
        best.median;
    const std::string what = format_string("%s cooperative matrices", real_name<Real>());
    rows.push_back({"arithmetic", row_of({"GPU", what}, best, 1e12, how)});
    return rows;
}

static Rows cpu_row(ReportRun& run, const char* what, double (*rate)(double), double& peak) {
    const Spread spread = repeated(repeats(run), 2.0, [&] { return rate(0.1); });
    peak = spread.median;
    return {{"arithmetic", row_of({"CPU", what}, spread, 1e12,
                                  peak > 0 ? "all threads, registers" : "not supported by the CPU")}};
}

static void add_arithmetic(Section& section, ReportRun& run) {
    section.tables.push_back(
        {"arithmetic",
         "Peak arithmetic rates, operands in registers",
         spread_columns({"where", "what"}, {"rate", "TFLOP/s", false, Better::more}, "configuration"),
         {},
         "Medians of the repetitions. An FMA counts as two operations. Cooperative "
         "matrices (tensor cores): the best configuration."});
    auto& list = section.measurements;
    if (run.pad) {
        list.push_back({"fp32 FMA, GPU", 0, [&]() -> Rows {
                            raise_clock(*run.pad);
                            const Spread rate = fma_rate(*run.pad, repeats(run));
                            run.peaks.gpu.fma_rate = rate.median;
                            const char* how = "16 accumulators/invocation, 256 invocations/workgroup";
                            return {{"arithmetic", row_of({"GPU", "fp32 FMA"}, rate, 1e12, how)}};
                        }});
        list.push_back({"cooperative matrices, bf16", 0, [&] { return matrix_rows<bf16>(run); }});
        list.push_back({"cooperative matrices, fp16", 0, [&] { return matrix_rows<fp16>(run); }});
    }
    list.push_back(
        {"fp32 FMA, CPU", 0, [&] { return cpu_row(run, "fp32 FMA", cpu_fma_rate, run.peaks.cpu.fma_rate); }});
    list.push_back(
        {"bf16 dot product, CPU", 0,
         [&] { return cpu_row(run, "bf16 dot product", cpu_bf16_rate, run.peaks.cpu.bf16_matrix_rate); }});
}

static Table matrix_table() {
    return {"matrix_configurations",
            "Cooperative matrices (tensor cores), by kernel configuration",
            spread_columns({"type", "subgroups", "accumulators", "iterations", "operands"},
                           {"rate", "TFLOP/s", false, Better::more}),
            {},
            "subgroups: per workgroup; accumulators: fragments per subgroup; iterations: of 16 multiply-adds "
            "of fragments. On a device that lowers its clock at high power, scattered operand values, as in "
            "real data, are slower than powers of two. Uniform operands have one value in all components, "
            "which a compiler may keep in one register; that can be slower."};
}

// --- memory ---

static std::vector<size_t> copy_sizes(const ReportRun& run, bool on_cpu) {
    size_t most = run.pad ? large_copy_bytes(*run.pad) : run.quick ? 64 << 20 : 256 << 20;
    // the host takes too long to fill 1 GiB
    if (run.quick && on_cpu) most = std::min<size_t>(most, 256 << 20);
    const size_t times = !run.quick ? 4 : run.software() ? 16 : 64;
    std::vector<size_t> sizes;
    for (size_t bytes = 64 << 10; bytes < most; bytes *= times) sizes.push_back(bytes);
    sizes.push_back(most);
    return sizes;
}

// Copies by size; those of the largest size also go into the table of bandwidths.
static void add_copies(Section& section, ReportRun& run, const char* where,
                       const std::function<Spread(size_t bytes)>& rate_of) {
    const std::vector<size_t> sizes = copy_sizes(run, !strcmp(where, "CPU"));
    for (const size_t bytes : sizes)
        section.measurements.push_back(
            {format_string("copies, %s: %zu bytes", where, bytes), double(bytes), [=, &run] {
                 const Spread rate = rate_of(bytes);
                 const double moved = 2.0 * double(bytes);
                 Rows rows = {{"copy_by_size",
                               size_row(where, bytes, moved, {moved / rate.median, 0, 0, rate.count})}};
                 if (bytes != sizes.back() || !strcmp(where, "GPU, overlapped")) return rows;
                 if (!strcmp(where, "GPU")) run.peaks.gpu.copy_rate = rate.median;
                 rows.push_back({"bandwidth", row_of({where, "copy (read + write)"}, rate, 1e9,
                                                     format_string("arrays of %zu MiB", bytes >> 20))});
                 return rows;
             }});
}

// Seconds of transfers of so many bytes.
static Spread upload_seconds(const ReportRun& run, size_t bytes, bool up) {
    LaunchPad& pad = *run.pad;
    Memory memory(&pad);
    char* there = memory.allocate<char>(bytes, "transfer");
    std::vector<char> here(bytes, 1);
    const auto transfer = [&] {
        const double start = now();
        if (up)
            pad.upload(there, here.data(), bytes), pad.commit(true);
        else
            pad.download(here.data(), there, bytes);
        return now() - start;
    };
    transfer();  // allocates staging memory
    return repeated(3 * repeats(run), run.quick ? 0.1 : 0.5, transfer);
}

static const char* transfer_way(MemoryMode mode) {
    return mode == MemoryMode::unified ? "copied by the host, since host and device share memory"
                                       : "through a staging buffer";
}

static void add_transfers(Section& section, ReportRun& run) {
    const size_t most = run.software() ? 16 << 20
                        : run.quick    ? 64 << 20
                                       : 256 << 20,
                 times = run.quick ? 16 : 4;
    for (const bool up : {true, false})
        for (size_t bytes = 4 << 10; bytes <= most; bytes *= times) {
            const char* direction = up ? "host to device" : "device to host";
            section.measurements.push_back(
                {format_string("%s: %zu bytes", direction, bytes), double(bytes), [=, &run] {
                     const Spread seconds = upload_seconds(run, bytes, up);
                     const double b = double(bytes);
                     Rows rows = {{"transfer_by_size", size_row(direction, bytes, b, seconds)}};
                     if (bytes * times <= most) return rows;
                     // the longest time is the lowest rate
                     rows.push_back({"bandwidth", row_of({"GPU", direction},
                                                         {b / seconds.median, b / seconds.most,
                                                          b / seconds.least, seconds.count},
                                                         1e9, format_string("%zu MiB", bytes >> 20))});
                     return rows;
                 }});
        }
}

// Bytes per second that all workgroups of the device together read from shared memory.
static Rows shared_row(ReportRun& run) {
    LaunchPad& pad = *run.pad;
    use_report_shaders();
    raise_clock(pad);  // the clock fell during the CPU's measurements
    const auto dispatch = [&](uint64_t groups, const PeakFmaArgs& args) {
        pad.dispatch("peak_shared", {groups}, {128}, args);
    };
    const Spread rate =
        group_rate(pad, {128, 8 * 16.0 * 128, pad.device().is_gpu() ? 2048 : 64, dispatch}, repeats(run));
    return {{"bandwidth", row_of({"GPU", "shared memory (read)"}, rate, 1e9,
                                 "16 bytes per access, all workgroups together")}};
}

static void add_memory(Section& section, ReportRun& run) {
    section.tables.push_back(
        {"bandwidth",
         "Peak memory bandwidth",
         spread_columns({"where", "what"}, {"rate", "GB/s", false, Better::more}, "configuration"),
         {},
         "Medians of the repetitions."});
    if (run.pad) {
        add_copies(section, run, "GPU",
                   [&](size_t bytes) { return copy_rate(*run.pad, bytes, false, repeats(run)); });
        add_copies(section, run, "GPU, overlapped",
                   [&](size_t bytes) { return copy_rate(*run.pad, bytes, true, repeats(run)); });
    }
    add_copies(section, run, "CPU", [&](size_t bytes) {
        return repeated(repeats(run), 1.0, [&] { return cpu_copy_rate(bytes, run.quick ? 5e-3 : 0.02); });
    });
    if (run.pad) {
        section.measurements.push_back({"shared memory", 0, [&] { return shared_row(run); }});
        add_transfers(section, run);
    }
    section.measurements.push_back({"memory, CPU", 0, [&]() -> Rows {
                                        const Spread rate = repeated(repeats(run), 2.0, cpu_memory_rate);
                                        run.peaks.cpu.copy_rate = rate.median;
                                        return {{"bandwidth", row_of({"CPU", "in place (read + write)"}, rate,
                                                                     1e9, "128 MiB, all threads")}};
                                    }});
}

// --- launches ---

struct LaunchWay {
    const char* name;  // for readers
    bool synchronous;  // one commit per dispatch, waited for; else all in one commit
    bool grouped;      // independent; else each waits for the one before
    bool replayed;     // recorded once; only the replay is timed
};
static const LaunchWay launch_ways[] = {{"synchronous", true, false, false},
                                        {"dependent, one commit", false, false, false},
                                        {"independent, one commit", false, true, false},
                                        {"dependent, replayed", false, false, true},
                                        {"independent, replayed", false, true, true}};

// Seconds per dispatch. gpu and host have a count of 0 for synchronous launches.
struct LaunchCost {
    Spread gpu;   // between GPU timestamps
    Spread wall;  // from the first call until the GPU has finished
    Spread host;  // until the calls return: recording and submitting
};

// The cost of `count` dispatches of an empty kernel, measured up to `repeats` times.
static LaunchCost launch_cost(LaunchPad& pad, const LaunchWay& way, int count, int repeats) {
    use_report_shaders();
    Memory memory(&pad);
    const uint32_t block = pad.limits().subgroup_size;
    float* p = memory.allocate<float>(block, "launches");
    const auto launch_all = [&] {
        const ConcurrentGroup group(way.grouped ? &pad : nullptr);
        for (int i = 0; i < count; i++) {  // with an address look-up, as in every layer
            pad.dispatch("peak_launch", {1}, {block}, PeakFmaArgs{pad.at(p, block), 0});
            if (way.synchronous) pad.commit(true);
        }
    };
    Recording* recording = nullptr;
    if (way.replayed) {
        pad.begin_recording();
        launch_all();
        recording = pad.end_recording();
    }
    const auto run = [&] { recording ? pad.replay(recording) : launch_all(); };
    LaunchCost cost;
    std::vector<double> host;
    run();  // compiles the kernel, allocates the command buffers
    pad.commit(true);
    cost.wall = repeated(repeats, 1.0, [&] {
        const double start = now();
        run();
        if (!way.synchronous) pad.commit(false);
        host.push_back((now() - start) / count);
        pad.commit(true);
        return (now() - start) / count;
    });
    if (!way.synchronous) {
        cost.host = spread_of(host);
        cost.gpu = repeated(repeats, 1.0, [&] { return pad.gpu_seconds(run) / count; });
    }
    if (recording) pad.forget(recording);
    return cost;
}

static void add_launches(Section& section, ReportRun& run) {
    section.tables.push_back({"dispatches",
                              "Dispatch overhead, by way of launching and number of dispatches",
                              {{"way", "", true},
                               {"dispatches", "", true},
                               {"gpu", "us", false, Better::less, 3},
                               {"wall", "us", false, Better::less, 3},
                               {"host", "us", false, Better::less, 3},
                               {"repetitions"}},
                              {},
                              "Medians per dispatch of an empty kernel. gpu: by GPU timestamps; wall: until "
                              "the host knows that all have finished; host: until its calls have returned."});
    section.plots.push_back(
        {"dispatches", "Dispatch overhead, wall clock (us per dispatch)", "dispatches", "wall", "way"});
    const auto cell = [](const Spread& s) { return s.count ? Cell(s.median * 1e6) : Cell(); };
    for (const LaunchWay& way : launch_ways)
        for (int count = 1; count <= (!run.quick ? 10000 : run.software() ? 100 : 1000); count *= 10)
            section.measurements.push_back(
                {format_string("dispatches: %s, %d", way.name, count), double(count), [=, &run]() -> Rows {
                     if (count == 1) raise_clock(*run.pad, 0.2);
                     const LaunchCost cost = launch_cost(*run.pad, way, count, run.quick ? 5 : 11);
                     return {{"dispatches",
                              {way.name, count, cell(cost.gpu), cell(cost.wall), cell(cost.host),
                               cost.wall.count}}};
                 }});
}

Section peak_section(ReportRun& run) {
    Section section = {"The measured peak rates of the device and of the CPU.", {}};
    add_arithmetic(section, run);
    add_memory(section, run);
    if (run.pad && (run.pad->limits().fragment<bf16>() || run.pad->limits().fragment<fp16>()))
        section.tables.push_back(matrix_table());
    section.tables.push_back(size_table(
        "copy_by_size", "Copy bandwidth (read + write), by array size", "where",
        "Medians. GPU: a kernel that copies 16 bytes per invocation, in dependent launches. Overlapped: "
        "groups of 16 independent launches, which for small arrays measures the caches. CPU: each thread "
        "copies its part repeatedly."));
    section.plots.push_back({"copy_by_size", "Copy bandwidth, by array size", "bytes", "rate", "where"});
    if (!run.pad) return section;
    section.tables.push_back(size_table(
        "transfer_by_size", "Transfers between host and device, by size", "direction",
        format_string("Medians, wall clock, from the call until the transfer is complete. Memory mode: %s: "
                      "%s.",
                      memory_mode_name(run.pad->memory_mode()), transfer_way(run.pad->memory_mode()))));
    section.plots.push_back(
        {"transfer_by_size", "Transfer bandwidth between host and device", "bytes", "rate", "direction"});
    add_launches(section, run);
    return section;
}
