// What starting kernels costs, and from which size on a GPU is worth it where work comes in small pieces:
//
//     build/dispatch_overhead [--device 0] [--quick] [--json FILE]
//
// Microseconds per dispatch in every way of launching, and per round of the chain of dev/report/chain.h, by
// size, on the CPU and in four forms on the GPU, whose states must agree with the CPU's.
#include <omp.h>

#include <algorithm>

#include "dev/report/chain.h"
#include "dev/report/launch_times.h"
#include "dev/report/results.h"
#include "dev/report/sweep.h"
#include "llmc/clock.h"
#include "shaders/args.h"

static Cell microseconds(const Spread& seconds) {
    return seconds.count ? Cell(seconds.median * 1e6) : Cell();
}

// --- dispatches ---

static std::string dispatch_note(double dependent, double independent, double alone) {
    std::string note =
        "Medians. gpu: by GPU timestamps; wall: until the host knows that all have finished; host: until its "
        "calls have returned.";
    if (dependent > 0 && independent > 0 && alone > 0)  // or there was no time
        note += format_string(
            " At the largest number, replayed: %.3g us for a dispatch that waits for the one before, %.3g "
            "us for one that does not, on the GPU; %.3g us to record, submit and wait for a single one.",
            dependent * 1e6, independent * 1e6, alone * 1e6);
    return note;
}

static void measure_dispatches(ReportRun& run) {
    LaunchPad& pad = *run.pad;
    Table table = {"dispatches",
                   "Time of one dispatch, by the way of launching and the number launched",
                   {{"way", "", true},
                    {"dispatches", "", true},
                    {"gpu", "us", false, Better::less, 3},
                    {"wall", "us", false, Better::less, 3},
                    {"host", "us", false, Better::less, 3},
                    {"repetitions"}}};
    double dependent = 0, independent = 0, alone = 0;
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
            if (way == LaunchWay::alone) alone = cost.wall.median;
        }
    }
    table.note = dispatch_note(dependent, independent, alone);
    run.tables.push_back(table);
    run.plots.push_back(
        {"dispatches", "Microseconds per dispatch (wall clock)", "dispatches", "wall", "way"});
}

// --- the chain ---

// How much is measured at one size.
struct ChainEffort {
    int chunk;       // rounds that are recorded, and timed together on the CPU
    int rounds;      // at most
    double seconds;  // of the CPU, after which it makes no more rounds
};

static std::vector<int> chain_sizes(const ReportRun& run) {
    if (!run.options.quick) return {16, 32, 64, 128, 256, 512, 1024, 2048};
    if (run.software()) return {16, 64, 256};
    return {16, 128, 1024};
}

static ChainEffort chain_effort(const ReportRun& run, const Chain& chain) {
    if (run.pad && run.software()) {  // some 10^8 multiplications a second
        const double products = double(chain.n) * chain.n * chain.batch;
        const double rounds = (run.options.quick ? 5e6 : 5e7) / products;
        const double least = run.options.quick ? 10 : 30, most = run.options.quick ? 50 : 1000;
        return {CHAIN_PERIOD, int(std::clamp(rounds, least, most)) / CHAIN_PERIOD * CHAIN_PERIOD, 1.0};
    }
    return run.options.quick ? ChainEffort{100, 300, 0.1} : ChainEffort{100, 10000, 2.0};
}

struct CpuResult {
    std::vector<float> states;
    int rounds = 0, threads = 1;
    Spread seconds;  // per round
};

// Threads are worth their start only where a round is long enough: one or all, whichever takes less time.
static int choose_threads(const Chain& chain, int rounds) {
    const int most = omp_get_max_threads();
    std::vector<float> states = chain.start;
    auto seconds = [&](int threads) {
        run_chain_cpu(chain, states, 0, CHAIN_PERIOD, threads);
        const double start = now();
        run_chain_cpu(chain, states, 0, rounds, threads);
        return now() - start;
    };
    return most > 1 && seconds(most) < seconds(1) ? most : 1;
}

static CpuResult measure_cpu(const Chain& chain, const ChainEffort& effort) {
    CpuResult result = {chain.start};
    result.threads = choose_threads(chain, effort.chunk);
    result.seconds = repeated(effort.rounds / effort.chunk, effort.seconds, [&] {
        const double start = now();
        run_chain_cpu(chain, result.states, result.rounds, effort.chunk, result.threads);
        result.rounds += effort.chunk;
        return (now() - start) / effort.chunk;
    });
    return result;
}

struct GpuResult {
    Spread seconds;  // per round, wall clock
    double error = 0;
};

// As many rounds as the CPU made, from the same start. `spoil` is for tests: the form whose result is
// changed.
static GpuResult measure_gpu(LaunchPad& pad, const Chain& chain, ChainForm form, const ChainEffort& effort,
                             const CpuResult& cpu, const std::string& spoil) {
    ChainOnGpu gpu(pad, chain, form, effort.chunk);
    GpuResult result;
    gpu.restart();
    gpu.run(effort.chunk);  // compiles the kernels
    pad.commit(true);
    result.seconds = repeated(5, 1.0, [&] {
        gpu.restart();
        pad.commit(true);
        const double start = now();
        gpu.run(cpu.rounds);
        pad.commit(true);
        return (now() - start) / cpu.rounds;
    });
    std::vector<float> states = gpu.download();
    if (spoil == chain_form_name(form)) states[states.size() / 2] += 0.01f;
    result.error = chain_error(states, cpu.states);
    if (!(result.error <= 1e-3))
        fail(
            "chain of %d x %d, batch %d: %s differs from the CPU by %.3g after %d rounds, 1e-3 is allowed: "
            "the "
            "kernel or the driver is wrong",
            chain.n, chain.n, chain.batch, chain_form_name(form), result.error, cpu.rounds);
    return result;
}

// Where one form beats the CPU.
struct Wins {
    std::string form;
    std::vector<int> sizes, winning;  // measured; in ascending order
};

static std::string wins_text(const Wins& wins) {
    if (wins.sizes.empty()) return wins.form + " was not measured";
    if (wins.winning.empty()) return wins.form + " at no size";
    const int first = wins.winning.front(), last = wins.winning.back();
    if (last == wins.sizes.back()) return format_string("%s from n = %d on", wins.form.c_str(), first);
    if (first == last) return format_string("%s at n = %d", wins.form.c_str(), first);
    return format_string("%s from n = %d to %d", wins.form.c_str(), first, last);
}

static std::string chain_note(const std::vector<Wins>& all) {
    std::string text =
        "Medians, wall clock; CPU: the faster of one thread and all. Unfused: 6 dispatches a round; fused: "
        "2, the "
        "pointwise operations in one kernel; whole round: 1; one workgroup: many rounds in a dispatch. The "
        "GPU's "
        "are recorded once and replayed, and agree with the CPU's (error: relative to the largest number).";
    if (all.empty()) return text;
    text += " The GPU wins: ";
    for (size_t i = 0; i < all.size(); i++) text += (i ? "; " : "") + wins_text(all[i]);
    return text + ".";
}

// One size, the CPU first, then each form, a row each.
static void measure_chain_size(ReportRun& run, const Chain& chain, const std::string& spoil, Table& table,
                               std::vector<Wins>& wins) {
    const int n = chain.n;
    const ChainEffort effort = chain_effort(run, chain);
    const double start = now();
    const CpuResult cpu = measure_cpu(chain, effort);
    table.rows.push_back(
        {"CPU", n, microseconds(cpu.seconds), nullptr, cpu.rounds, cpu.seconds.count, cpu.threads, nullptr});
    if (run.pad) raise_clock_after(*run.pad, now() - start, run.options.quick);
    for (Wins& w : wins) {
        const ChainForm form = chain_forms[&w - wins.data()];
        if (!ChainOnGpu::possible(*run.pad, chain, form)) {
            table.rows.push_back({w.form, n, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr});
            continue;
        }
        const GpuResult gpu = measure_gpu(*run.pad, chain, form, effort, cpu, spoil);
        const double speed_up = cpu.seconds.median / gpu.seconds.median;
        w.sizes.push_back(n);
        if (speed_up > 1) w.winning.push_back(n);
        table.rows.push_back({w.form, n, microseconds(gpu.seconds), speed_up, cpu.rounds, gpu.seconds.count,
                              nullptr, gpu.error});
    }
}

static void measure_chain(ReportRun& run, int batch, const std::string& spoil, Table& crossover) {
    Table table = {
        batch == 1 ? "chain_vector" : "chain_batch",
        format_string("Time of one round: a product of n x n by %d vector%s and five pointwise operations",
                      batch, batch == 1 ? "" : "s"),
        {{"form", "", true},
         {"n", "", true},
         {"round", "us", false, Better::less, 3},
         {"speed-up", "", false, Better::more, 3},
         {"rounds"},
         {"repetitions"},
         {"threads"},
         {"error", "", false, Better::neither, 2}}};
    std::vector<Wins> wins;
    if (run.pad)
        for (const ChainForm form : chain_forms) wins.push_back({chain_form_name(form)});
    for (const int n : chain_sizes(run))
        run.step(format_string("chain of n = %d, batch %d", n, batch), n,
                 [&] { measure_chain_size(run, make_chain(n, batch), spoil, table, wins); });
    table.note = chain_note(wins);
    for (const Wins& w : wins)
        crossover.rows.push_back({w.form, batch, w.winning.empty() ? Cell() : Cell(w.winning.front()),
                                  w.winning.empty() ? Cell() : Cell(w.winning.back()),
                                  w.sizes.empty() ? Cell() : Cell(w.sizes.back())});
    run.tables.push_back(table);
    run.plots.push_back(
        {table.name, format_string("Microseconds per round, batch %d", batch), "n", "round", "form"});
}

int main(int argc, char** argv) {
    std::string spoil;
    auto add_options = [&](CLI::App& app) {
        std::vector<std::string> names;
        for (const ChainForm form : chain_forms) names.push_back(chain_form_name(form));
        app.add_option("--spoil", spoil, "for tests: change a number of this form's result")
            ->check(CLI::IsMember(names))
            ->group("");  // not in --help
    };
    return run_report_program("dispatch_overhead", "what launching kernels costs", argc, argv, add_options,
                              [&](ReportRun& run) {
                                  if (run.pad) measure_dispatches(run);
                                  Table crossover = {"crossover",
                                                     "Sizes n at which the GPU is faster than the CPU",
                                                     {{"form", "", true},
                                                      {"batch", "", true},
                                                      {"smallest", "", false, Better::less},
                                                      {"largest"},
                                                      {"largest measured"}}};
                                  for (const int batch : {1, 8}) measure_chain(run, batch, spoil, crossover);
                                  if (run.pad) run.tables.push_back(crossover);
                              });
}
