// Launch overhead, and the problem size from which a GPU is worth using for many small dependent operations:
//
//     build/dispatch_overhead [--device 0] [--quick] [--json FILE]
//
// Reports microseconds per dispatch for every way of launching; and microseconds per step of the chain of
// dev/report/chain.h, by size, on the CPU and in four GPU variants, whose results must agree with the CPU's.
#include <omp.h>

#include <algorithm>

#include "dev/report/chain.h"
#include "dev/report/launch_times.h"
#include "dev/report/results.h"
#include "dev/report/sweep.h"
#include "llmc/base/clock.h"
#include "shaders/args.h"

static Cell microseconds(const Spread& seconds) {
    return seconds.count ? Cell(seconds.median * 1e6) : Cell();
}

// --- dispatches ---

static std::string dispatch_note(double dependent, double independent, double synchronous) {
    std::string note =
        "Medians. gpu: by GPU timestamps; wall: until the host knows that all have finished; host: until its "
        "calls have returned.";
    if (dependent > 0 && independent > 0 && synchronous > 0)  // they were measured in time
        note += format_string(
            " With the largest number of dispatches, replayed, on the GPU: %.3g us per dependent dispatch, "
            "%.3g us per independent dispatch. Recording, submitting and waiting for a single one: %.3g us.",
            dependent * 1e6, independent * 1e6, synchronous * 1e6);
    return note;
}

static Table dispatch_table() {
    return {"dispatches",
            "Dispatch overhead, by way of launching and number of dispatches",
            {{"way", "", true},
             {"dispatches", "", true},
             {"gpu", "us", false, Better::less, 3},
             {"wall", "us", false, Better::less, 3},
             {"host", "us", false, Better::less, 3},
             {"repetitions"}}};
}

static void measure_dispatches(ReportRun& run) {
    LaunchPad& pad = *run.pad;
    Table table = dispatch_table();
    double dependent = 0, independent = 0, synchronous = 0;
    raise_clock(pad);
    for (const LaunchWay way : launch_ways) {
        for (const int count : {1, 10, 100, 1000, 10000}) {
            if (count > (!run.options.quick ? 10000 : run.software() ? 100 : 1000)) continue;
            LaunchCost cost;
            const bool done =
                run.step(format_string("dispatches: %s, %d", launch_way_name(way), count), count,
                         [&] { cost = launch_cost(pad, way, count, run.options.quick ? 5 : 11); });
            if (!done) continue;
            table.rows.push_back({launch_way_name(way), count, microseconds(cost.gpu),
                                  microseconds(cost.wall), microseconds(cost.host), cost.wall.count});
            if (way == LaunchWay::replayed) dependent = cost.gpu.median;
            if (way == LaunchWay::replayed_independent) independent = cost.gpu.median;
            if (way == LaunchWay::synchronous) synchronous = cost.wall.median;
        }
    }
    table.note = dispatch_note(dependent, independent, synchronous);
    run.tables.push_back(table);
    run.plots.push_back(
        {"dispatches", "Dispatch overhead, wall clock (us per dispatch)", "dispatches", "wall", "way"});
}

// --- the chain ---

// How much to measure at one size.
struct ChainEffort {
    int chunk;       // steps that are recorded, and timed together on the CPU
    int steps;       // at most
    double seconds;  // of the CPU, after which it stops
};

static std::vector<int> chain_sizes(const ReportRun& run) {
    if (!run.options.quick) return {16, 32, 64, 128, 256, 512, 1024, 2048};
    if (run.software()) return {16, 64, 256};
    return {16, 128, 1024};
}

static ChainEffort chain_effort(const ReportRun& run, const Chain& chain) {
    if (run.pad && run.software()) {  // about 10^8 multiply-adds per second
        const double multiply_adds = double(chain.n) * chain.n * chain.batch;
        const double steps = (run.options.quick ? 5e6 : 5e7) / multiply_adds;
        const double least = run.options.quick ? 10 : 30, most = run.options.quick ? 50 : 1000;
        return {CHAIN_PERIOD, int(std::clamp(steps, least, most)) / CHAIN_PERIOD * CHAIN_PERIOD, 1.0};
    }
    return run.options.quick ? ChainEffort{100, 300, 0.1} : ChainEffort{100, 10000, 2.0};
}

struct CpuResult {
    std::vector<float> states;
    int steps = 0, threads = 1;
    Spread seconds;  // per step
};

// One thread or all, whichever is faster: starting threads pays only if a step takes long enough.
static int choose_threads(const Chain& chain, int steps) {
    const int most = omp_get_max_threads();
    std::vector<float> states = chain.start;
    auto seconds = [&](int threads) {
        run_chain_cpu(chain, states, 0, CHAIN_PERIOD, threads);
        const double start = now();
        run_chain_cpu(chain, states, 0, steps, threads);
        return now() - start;
    };
    return most > 1 && seconds(most) < seconds(1) ? most : 1;
}

static CpuResult measure_cpu(const Chain& chain, const ChainEffort& effort) {
    CpuResult result = {chain.start};
    result.threads = choose_threads(chain, effort.chunk);
    result.seconds = repeated(effort.steps / effort.chunk, effort.seconds, [&] {
        const double start = now();
        run_chain_cpu(chain, result.states, result.steps, effort.chunk, result.threads);
        result.steps += effort.chunk;
        return (now() - start) / effort.chunk;
    });
    return result;
}

struct GpuResult {
    Spread seconds;  // per step, wall clock
    double error = 0;
};

struct ChainOptions {
    std::vector<std::string> spoil;  // for tests: the variants whose results are changed

    bool spoils(ChainVariant variant) const {
        return std::count(spoil.begin(), spoil.end(), chain_variant_name(variant)) > 0;
    }
};

// Runs as many steps as the CPU did, from the same start.
static GpuResult measure_gpu(LaunchPad& pad, const Chain& chain, ChainVariant variant, int chunk,
                             const CpuResult& cpu, const ChainOptions& options) {
    ChainOnGpu gpu(pad, chain, variant, chunk);
    GpuResult result;
    gpu.restart();
    gpu.run(chunk);  // compiles the kernels
    pad.commit(true);
    result.seconds = repeated(5, 1.0, [&] {
        gpu.restart();
        pad.commit(true);
        const double start = now();
        gpu.run(cpu.steps);
        pad.commit(true);
        return (now() - start) / cpu.steps;
    });
    std::vector<float> states = gpu.download();
    if (options.spoils(variant)) states[states.size() / 2] += 0.01f;
    result.error = chain_error(states, cpu.states);
    if (!(result.error <= 1e-3))
        fail(
            "chain, n = %d, batch %d: %s differs from the CPU by %.3g after %d steps, the limit is 1e-3: the "
            "kernel or the driver is wrong",
            chain.n, chain.batch, chain_variant_name(variant), result.error, cpu.steps);
    return result;
}

// The sizes at which one variant is faster than the CPU, both lists in ascending order.
struct Wins {
    std::string variant;
    std::vector<int> sizes, winning;  // sizes measured; those at which it is faster
};

static std::string wins_text(const Wins& wins) {
    if (wins.sizes.empty()) return wins.variant + " was not measured";
    if (wins.winning.empty()) return wins.variant + " at no size";
    const int first = wins.winning.front(), last = wins.winning.back();
    if (last == wins.sizes.back()) return format_string("%s from n = %d on", wins.variant.c_str(), first);
    if (first == last) return format_string("%s at n = %d", wins.variant.c_str(), first);
    return format_string("%s from n = %d to %d", wins.variant.c_str(), first, last);
}

static std::string chain_note(const std::vector<Wins>& all) {
    std::string text =
        "Medians, wall clock. CPU: one thread or all threads, whichever is faster. Unfused: 6 dispatches per "
        "step; fused: 2, with the pointwise operations in one kernel. The GPU's commands are recorded once "
        "and replayed. error: difference from the CPU's result, relative to its largest element.";
    if (all.empty()) return text;
    text += " Faster than the CPU: ";
    for (size_t i = 0; i < all.size(); i++) text += (i ? "; " : "") + wins_text(all[i]);
    return text + ".";
}

// Measures one size, first on the CPU, then in each variant, and adds a row for each.
static void measure_chain_size(ReportRun& run, const Chain& chain, const ChainOptions& options, Table& table,
                               std::vector<Wins>& wins) {
    const int n = chain.n;
    const ChainEffort effort = chain_effort(run, chain);
    const double start = now();
    const CpuResult cpu = measure_cpu(chain, effort);
    table.rows.push_back(
        {"CPU", n, microseconds(cpu.seconds), nullptr, cpu.steps, cpu.seconds.count, cpu.threads, nullptr});
    if (run.pad) raise_clock_after(*run.pad, now() - start, run.options.quick);
    for (Wins& w : wins) {
        const ChainVariant variant = chain_variants[&w - wins.data()];
        if (!ChainOnGpu::possible(*run.pad, chain, variant)) {
            table.rows.push_back({w.variant, n, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr});
            continue;
        }
        const GpuResult gpu = measure_gpu(*run.pad, chain, variant, effort.chunk, cpu, options);
        const double speed_up = cpu.seconds.median / gpu.seconds.median;
        w.sizes.push_back(n);
        if (speed_up > 1) w.winning.push_back(n);
        table.rows.push_back({w.variant, n, microseconds(gpu.seconds), speed_up, cpu.steps, gpu.seconds.count,
                              nullptr, gpu.error});
    }
}

static Table chain_table(int batch) {
    return {batch == 1 ? "chain_vector" : "chain_batch",
            format_string("Small dependent operations: one step is an (n, n) times (n, %d) GEMM and five "
                          "pointwise operations",
                          batch),
            {{"variant", "", true},
             {"n", "", true},
             {"step", "us", false, Better::less, 3},
             {"speed-up", "", false, Better::more, 3},
             {"steps"},
             {"repetitions"},
             {"threads"},
             {"error", "", false, Better::neither, 2}}};
}

static void measure_chain(ReportRun& run, int batch, const ChainOptions& options, Table& crossover) {
    Table table = chain_table(batch);
    std::vector<Wins> wins;
    if (run.pad)
        for (const ChainVariant variant : chain_variants) wins.push_back({chain_variant_name(variant)});
    for (const int n : chain_sizes(run))
        run.step(format_string("chain, n = %d, batch %d", n, batch), n,
                 [&] { measure_chain_size(run, make_chain(n, batch), options, table, wins); });
    table.note = chain_note(wins);
    for (const Wins& w : wins)
        crossover.rows.push_back({w.variant, batch, w.winning.empty() ? Cell() : Cell(w.winning.front()),
                                  w.winning.empty() ? Cell() : Cell(w.winning.back()),
                                  w.sizes.empty() ? Cell() : Cell(w.sizes.back())});
    run.tables.push_back(table);
    run.plots.push_back({table.name,
                         format_string("Small dependent operations, batch %d (us per step)", batch), "n",
                         "step", "variant"});
}

static void measure(ReportRun& run, const ChainOptions& options) {
    if (run.pad) measure_dispatches(run);
    Table crossover = {"crossover",
                       "Small dependent operations: sizes n at which the GPU is faster than the CPU",
                       {{"variant", "", true},
                        {"batch", "", true},
                        {"smallest", "", false, Better::less},
                        {"largest"},
                        {"largest measured"}}};
    for (const int batch : {1, 8}) measure_chain(run, batch, options, crossover);
    if (run.pad) run.tables.push_back(crossover);
}

int main(int argc, char** argv) {
    ChainOptions options;
    std::vector<std::string> variants;
    for (const ChainVariant variant : chain_variants) variants.push_back(chain_variant_name(variant));
    return run_report_program(
        {.name = "dispatch_overhead",
         .what = "Launch overhead, and the crossover size of small dependent operations.",
         .options = {{.name = "--spoil", .help = "", .values = &options.spoil, .allowed = variants}},
         .measure = [&](ReportRun& run) { measure(run, options); }},
        argc, argv);
}
