// The frame of a report program, from options to JSON: see results.h.
#include "dev/report/results.h"

#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "dev/report/child.h"
#include "dev/report/process.h"
#include "llmc/base/clock.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/os.h"
#include "llmc/base/output.h"
#include "llmc/launchpad/open_device.h"
#include "llmc/options/command_line.h"
#include "llmc/options/start_program.h"

#ifdef __clang__
static const char* compiler = "clang " __clang_version__;
#else
static const char* compiler = "g++ " __VERSION__;
#endif

// --- the machine ---

// The value after "NAME: " or "NAME=" in a file of lines such as /proc/cpuinfo; empty if there is none.
static std::string find_in_lines(const char* path, const std::string& name) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        const size_t end = line.find_first_of("=:");
        if (end == std::string::npos || line.substr(0, line.find_last_not_of(" \t", end - 1) + 1) != name)
            continue;
        const size_t from = line.find_first_not_of(" \t\"", end + 1);
        return from == std::string::npos ? "" : line.substr(from, line.find_last_not_of(" \t\"") + 1 - from);
    }
    return "";
}

static Cell fragment_text(const FragmentShape& shape) {
    return shape ? Cell(format_string("%ux%ux%u", shape.M, shape.N, shape.K)) : Cell();
}

static std::vector<Fact> describe_gpu(const LaunchPad& pad) {
    const DeviceInfo& device = pad.device();
    const Limits& limits = pad.limits();
    return {{"name", device.name},
            {"type", device_type_name(device.type)},
            {"driver", device.driver},
            {"api_version", device.api_version},
            {"memory_bytes", device.memory_bytes},
            {"memory_mode", memory_mode_name(pad.memory_mode())},
            {"bf16_matrix", fragment_text(limits.bf16_fragment)},
            {"fp16_matrix", fragment_text(limits.fp16_fragment)},
            {"subgroup_size", limits.subgroup_size},
            {"max_block", limits.max_block},
            {"shared_bytes", limits.shared_bytes}};
}

Machine describe_machine(const LaunchPad* pad) {
    const std::string kernel = system_name();
    std::string system = find_in_lines("/etc/os-release", "PRETTY_NAME");
    if (system.empty()) system = kernel;
    std::string cpu = find_in_lines("/proc/cpuinfo", "model name");
    if (cpu.empty())
        cpu = kernel.substr(kernel.rfind(' ') +
                            1);  // on Arm cpuinfo has no name, and other systems have no cpuinfo
    Machine machine;
    if (pad) machine.gpu = describe_gpu(*pad);
    machine.host = {{"cpu", cpu},
                    {"cores", std::thread::hardware_concurrency()},
                    {"threads", omp_get_max_threads()},
                    {"memory_bytes", physical_memory()},
                    {"system", system},
                    {"kernel", kernel},
                    {"compiler", compiler},
                    {"version", PROJECT_VERSION}};
    return machine;
}

// --- the run ---

void ReportRun::progress(const std::string& what) const {
    // `report` sets the variable and shows the lines in its own status line
    if (is_terminal(stderr) || getenv("REPORT_PROGRESS")) print_line(stderr, "%s", what.c_str());
}

double ReportRun::seconds_left() const { return end - now(); }

bool ReportRun::step(const std::string& what, double size, const std::function<void()>& measure,
                     double expected) {
    const double start = now();
    for (const Step& before : steps)
        if (before.size <= size) expected = std::max(expected, before.seconds);
    if (start + expected > end) {
        left_out.push_back(what);
        return false;
    }
    progress(what);
    measure();
    steps.push_back({size, now() - start});
    return true;
}

static std::string left_out_text(const std::vector<std::string>& left_out) {
    std::string text = format_string("skipped for lack of time (%zu measurements)", left_out.size());
    for (size_t i = 0; i < left_out.size(); i++) text += (i ? "; " : ": ") + left_out[i];
    return text;
}

static void add_common_options(CommandLine& line, CommonOptions& o) {
    line.add_device(o.device);
    line.add("--json", o.json, "write the tables to this file, as JSON").is(PathKind::file);
    line.add("--quick", o.quick, "fewer and smaller measurements");
    line.add("--peaks", o.peaks, "refer to the peaks in this JSON file, which `peak` wrote")
        .is(PathKind::file);
    line.add("--seconds", o.seconds, "time limit; measurements that no longer fit are skipped (0: none)")
        .between(0, 1e6);
}

static void add_list(CommandLine& line, const ReportOption& o) {
    Option& row =
        std::visit([&](auto* values) -> Option& { return line.add(o.name, *values, o.help); }, o.values);
    row.one_of(o.allowed).list();
    if (o.min < o.max) row.between(o.min, o.max);
}

int run_report_program(const ReportProgram& program, int argc, char** argv) {
    start_program(argv);
    ReportRun run;
    CommandLine line(program.name, program.what);
    add_common_options(line, run.options);
    for (const ReportOption& o : program.options) add_list(line, o);
    return line.run(argc, argv, [&] {
        const double start = now();
        if (run.options.seconds > 0) run.end = start + run.options.seconds;
        const std::string& json_path = run.options.json;
        if (!json_path.empty()) {
            check_output(json_path, {run.options.peaks}, is_report_part);
            check_writable(json_path);
        }
        FILE* const out = is_same_file(json_path, "/dev/stdout") ? stderr : stdout;
        run.pad = open_device(run.options.device, {}, out);
        program.measure(run);
        const std::string text = report_part_text({.program = program.name,
                                                   .what = program.what,
                                                   .command = command_text({argv, argv + argc}),
                                                   .seconds = now() - start,
                                                   .device = describe_machine(run.pad.get()),
                                                   .tables = run.tables,
                                                   .plots = run.plots,
                                                   .left_out = run.left_out});
        for (const Table& table : run.tables) fprintf(out, "\n%s", table_text(table).c_str());
        if (!run.left_out.empty())
            fputc('\n', out), print_line(out, "%s", left_out_text(run.left_out).c_str());
        if (!json_path.empty()) write_whole_file(json_path, {text}, Target::named);
    });
}
