// Times the kernels of kernel_cases.h: every GPU version and config at GPT-2's shapes by GPU timestamps, what
// training calls, and the CPU's version for comparison. A row has GB/s or TFLOP/s, and on a GPU the
// percentage of a peak that is measured on the same device: copy bandwidth, or fp32 FMA (tensor cores exceed
// it).
//
//     build/bench [--device NAME] [--filter REGEX] [--json FILE]
//
// For example, --filter 'gelu_forward2/bf16' runs one version in one type. A version is first compared with
// the CPU's at a small shape: a wrong one ends the program. On a software device the shapes are smaller, so
// that a run ends soon. build/report compares two JSON files, or makes a page of one.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "dev/report/section.h"
#include "dev/vulkan/baselines/baselines.h"
#include "llmc/base/clock.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/output.h"
#include "llmc/kernels/kernel_cases.h"
#include "llmc/launchpad/open_device.h"
#include "llmc/options/command_line.h"
#include "llmc/options/start_program.h"

struct BenchOptions {
    std::string device = "auto", filter, json;
};

struct Bench {
    std::unique_ptr<LaunchPad> pad;
    Peaks peaks = {};
    std::regex filter = {};
    FILE* out = stdout;
    std::set<std::string> checked = {};
    Table table = {"kernels",
                   "Kernels",
                   {{"kernel", "", true},
                    {"time", "us", false, Better::less},
                    {"rate", "", false, Better::more},
                    {"unit", "", true},
                    {"of peak", "%", false, Better::neither, 3}}};

    bool chosen(const std::string& name) const { return std::regex_search(name, filter); }
    void add_row(const std::string& name, Work work, double seconds, bool on_gpu);
};

void Bench::add_row(const std::string& name, Work work, double seconds, bool on_gpu) {
    const bool arithmetic = work.flops > 0;
    const double rate = (arithmetic ? work.flops : work.bytes) / seconds,
                 peak = arithmetic ? peaks.fma_rate : peaks.copy_rate;
    const std::vector<Cell> row = {name, 1e6 * seconds, rate / (arithmetic ? 1e12 : 1e9),
                                   arithmetic ? "TFLOP/s" : "GB/s",
                                   on_gpu ? number(100 * rate / peak) : Cell()};
    table.rows.push_back(row);
    print_line(out, "%-72s %10s us %10s %-7s %s", name.c_str(), cell_text(row[1], table.columns[1]).c_str(),
               cell_text(row[2], table.columns[2]).c_str(), row[3].text().c_str(),
               on_gpu ? (cell_text(row[4], table.columns[4]) + " % of peak").c_str() : "");
}

// The median of seven batches after a warm-up.
static double gpu_seconds(LaunchPad& pad, const KernelRun& run) {
    Operands operands(&pad);
    const auto launch = run.prepare(operands);
    warm_up(pad, launch, 0.05);
    return repeated(7, 1e9, [&] { return seconds_per_launch(pad, launch, 0.01); }).median;
}

static double cpu_seconds(const KernelRun& run) {
    Operands operands(nullptr);
    const auto launch = run.prepare(operands);
    launch();
    return repeated(1000, 0.2,
                    [&] {
                        const double start = now();
                        launch();
                        return now() - start;
                    })
        .median;
}

// Only what makes a row is checked.
static void time_on_gpu(Bench& bench, KernelCase c, const std::vector<KernelCase>& small_cases) {
    const auto name_of = [&](const KernelRun& run) { return c.layer + "/" + run.name + "/" + c.shape; };
    std::erase_if(c.versions, [&](const KernelRun& run) {
        return run.slow || !run.fits(*bench.pad) || !bench.chosen(name_of(run));
    });
    const bool layer = bench.chosen(name_of(c.layer_run));
    if (!layer && c.versions.empty()) return;
    for (KernelCase small : small_cases) {
        if (small.layer != c.layer) continue;
        std::erase_if(small.versions, [&](const KernelRun& run) {
            return std::none_of(c.versions.begin(), c.versions.end(),
                                [&](const KernelRun& timed) { return timed.name == run.name; }) ||
                   !bench.checked.insert(small.layer + small.shape + run.name).second;
        });
        if (bench.checked.insert(small.layer + small.shape).second || !small.versions.empty())
            check_kernels(*bench.pad, small);
    }
    if (layer) bench.add_row(name_of(c.layer_run), c.work, gpu_seconds(*bench.pad, c.layer_run), true);
    for (const KernelRun& run : c.versions)
        bench.add_row(name_of(run), c.work, gpu_seconds(*bench.pad, run), true);
}

// Layers of every size of a model; others are measured at the first shape only.
static bool is_large(const KernelCase& c) {
    return c.layer.starts_with("matmul") || c.layer.starts_with("attention");
}

static const KernelShape on_cpu = {.B = 4, .T = 64, .C = 768, .NH = 12};
static const KernelShape to_check = {
    .B = 2, .T = 37, .C = 96, .NH = 3, .V = 301, .Vp = 384, .layers = 1, .linear = {{96, 224}}};

template <class Real>
static void run_type(Bench& bench) {
    add_baselines();
    if (bench.pad) {
        const std::vector<KernelCase> small = kernel_cases<Real>(to_check);
        std::vector<KernelShape> shapes = {{.B = 64, .T = 1024, .C = 768, .NH = 12, .layers = 12},
                                           {.B = 4, .T = 64, .C = 768, .NH = 12},
                                           {.B = 4, .T = 1024, .C = 768, .NH = 12},
                                           {.B = 11, .T = 512, .C = 768, .NH = 12, .linear = {{768, 50304}}},
                                           {.B = 16, .T = 1024, .C = 1024, .NH = 16},
                                           {.B = 16, .T = 1024, .C = 1280, .NH = 20},
                                           {.B = 16, .T = 1024, .C = 1600, .NH = 25}};
        if (bench.pad->device().type == DeviceType::software)
            shapes = {{.B = 2, .T = 64, .C = 96, .NH = 3, .layers = 1, .linear = {{96, 384}}}};
        for (const KernelShape& shape : shapes)
            for (const KernelCase& c : kernel_cases<Real>(shape))
                if (&shape == &shapes[0] || is_large(c)) time_on_gpu(bench, c, small);
    }
    for (KernelCase& c : kernel_cases<Real>(on_cpu)) {
        const std::string name = c.layer + "/cpu/" + real_name<Real>() + "/" + c.shape;
        if (bench.chosen(name)) bench.add_row(name, c.work, cpu_seconds(c.layer_run), false);
    }
}

static void run(const BenchOptions& o, const std::string& command) {
    Bench bench;
    try {
        bench.filter = std::regex(o.filter, std::regex::extended);
    } catch (const std::regex_error& error) {
        fail("--filter %s: %s", o.filter.c_str(), error.what());
    }
    if (!o.json.empty()) {
        check_output(o.json, {}, [](const std::string& path) { return read_report(path), true; });
        check_writable(o.json);
        if (is_same_file(o.json, "/dev/stdout")) bench.out = stderr;
    }
    bench.pad = open_device(o.device, {}, bench.out);
    if (bench.pad) {
        bench.peaks = measure_peaks(*bench.pad);
        print_line(bench.out, "copy bandwidth %.1f GB/s, fp32 FMA %.3f TFLOP/s", bench.peaks.copy_rate / 1e9,
                   bench.peaks.fma_rate / 1e12);
    }
    const double start = now();
    run_type<float>(bench);
    run_type<bf16>(bench);
    if (bench.table.rows.empty()) fail("--filter %s: no row has such a name", o.filter.c_str());
    if (o.json.empty()) return;
    const ReportPart part = {.program = "bench",
                             .what = "Every version of every kernel.",
                             .command = command,
                             .error = "",
                             .seconds = now() - start,
                             .device = describe_machine(bench.pad.get()),
                             .tables = {bench.table}};
    write_whole_file(o.json, {json_text(report_to_json({"", command, false, {part}}), 1), "\n"},
                     Target::named);
}

int main(int argc, char** argv) {
    start_program(argv);
    BenchOptions o;
    CommandLine line("bench", "Times every version of every kernel.");
    line.add_device(o.device);
    line.add("--filter", o.filter, "only rows whose names match this regular expression");
    line.add("--json", o.json, "write the rows to this file, which build/report compares").is(PathKind::file);
    return line.run(argc, argv, [&] { run(o, command_text(argc, argv)); });
}
