// The run of a report program, from options to JSON: see results.h.
#include "dev/report/results.h"

#include <omp.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "data/command_line.h"
#include "llmc/clock.h"
#include "llmc/file.h"
#include "llmc/openmp_waiting.h"

using nlohmann::json;

#ifdef __clang__
static const char* compiler = "clang " __clang_version__;
#else
static const char* compiler = "g++ " __VERSION__;
#endif

// --- the machine ---

// What stands behind "NAME: " or "NAME=" in a file of lines such as /proc/cpuinfo; empty where there is none.
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

static json matrix_text(const MatrixShape& shape) {
    return shape ? json(format_string("%ux%ux%u", shape.M, shape.N, shape.K)) : json();
}

static json describe_gpu(const LaunchPad& pad) {
    const DeviceInfo& device = pad.device();
    const Limits& limits = pad.limits();
    return {{"name", device.name},
            {"type", device_type_name(device.type)},
            {"driver", device.driver},
            {"api_version", device.api_version},
            {"memory_bytes", device.memory_bytes},
            {"memory_mode", memory_mode_name(pad.memory_mode())},
            {"bf16_matrix", matrix_text(limits.bf16_matrix)},
            {"fp16_matrix", matrix_text(limits.fp16_matrix)},
            {"subgroup_size", limits.subgroup_size},
            {"max_block", limits.max_block},
            {"shared_bytes", limits.shared_bytes}};
}

json describe_machine(const LaunchPad* pad) {
    utsname kernel = {};
    uname(&kernel);
    std::string system = find_in_lines("/etc/os-release", "PRETTY_NAME");
    if (system.empty()) system = kernel.sysname;
    std::string cpu = find_in_lines("/proc/cpuinfo", "model name");
    if (cpu.empty()) cpu = kernel.machine;  // ARM's cpuinfo has no name, and other systems no cpuinfo
    const uint64_t memory = uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
    return {{"gpu", pad ? describe_gpu(*pad) : json()},
            {"cpu", cpu},
            {"cores", std::thread::hardware_concurrency()},
            {"threads", omp_get_max_threads()},
            {"memory_bytes", memory},
            {"system", system},
            {"kernel", format_string("%s %s %s", kernel.sysname, kernel.release, kernel.machine)},
            {"compiler", compiler},
            {"version", PROJECT_VERSION}};
}

std::string shell_word(const std::string& word) {
    const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
        return isalnum(c) || c >= 0x80 || strchr("_-./=:,+@%", c);
    });
    if (plain) return word;
    std::string quoted = "'";
    for (char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
    return quoted + "'";
}

std::string command_text(int argc, char** argv) {
    std::string text;
    for (int i = 0; i < argc; i++) text += (i ? " " : "") + shell_word(argv[i]);
    return text;
}

// --- the run ---

void ReportRun::progress(const std::string& what) const {
    // `report` sets the variable: it shows the lines as its own
    if (isatty(STDERR_FILENO) || getenv("REPORT_PROGRESS")) fprintf(stderr, "%s\n", what.c_str());
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
    std::string text = format_string("left out: no time for %zu of the measurements", left_out.size());
    for (size_t i = 0; i < left_out.size(); i++) text += (i ? "; " : ": ") + left_out[i];
    return text;
}

static void open_device(ReportRun& run, const char* name) {
    if (run.options.threads > 0) omp_set_num_threads(run.options.threads);
    const DeviceChoice choice = choose_device(run.options.device);
    if (choice.device) {
        LaunchPadOptions launchpad;
        launchpad.device = std::to_string(choice.device->index);
        run.pad = std::make_unique<LaunchPad>(launchpad);
        printf("%s: %s, %s", name, run.pad->device().name.c_str(), run.pad->device().driver.c_str());
    } else {
        printf("%s: CPU", name);
    }
    printf(", %d threads (%s)\n", omp_get_max_threads(), choice.reason.c_str());
    fflush(stdout);
}

int run_report_program(const char* name, const char* what, int argc, char** argv,
                       const std::function<void(CLI::App&)>& add_options,
                       const std::function<void(ReportRun&)>& measure) {
    wait_briefly(argv);
    ReportRun run;
    CLI::App app(what, name);
    app.add_option("--device", run.options.device,
                   "auto, cpu, gpu, a number of train_gpt2 --list-devices, or part of a name")
        ->capture_default_str();
    app.add_option("--json", run.options.json, "file to write the tables to, as JSON");
    app.add_flag("--quick", run.options.quick, "fewer and smaller measurements");
    app.add_option("--threads", run.options.threads,
                   "threads of the CPU (0: as OMP_NUM_THREADS says, or all cores)")
        ->check(CLI::Range(0, 1 << 16))
        ->capture_default_str();
    app.add_option("--seconds", run.options.seconds,
                   "that it may take; it leaves out what no longer fits (0: as many as it needs)")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    if (add_options) add_options(app);
    return run_command_line(app, argc, argv, [&] {
        const double start = now();
        if (run.options.seconds > 0) run.end = start + run.options.seconds;
        open_device(run, name);
        measure(run);
        json file = {{"program", name},
                     {"what", what},
                     {"command", command_text(argc, argv)},
                     {"device", describe_machine(run.pad.get())},
                     {"seconds", now() - start},
                     {"tables", json::array()},
                     {"plots", json::array()},
                     {"left_out", run.left_out}};
        for (const Table& table : run.tables) {
            file["tables"].push_back(table_to_json(table));
            table_from_json(file["tables"].back(), name);  // what a reader would refuse is not written
        }
        for (const Plot& plot : run.plots) file["plots"].push_back(plot_to_json(plot));
        check_plots(run.plots, run.tables, name);
        for (const Table& table : run.tables) printf("\n%s", table_text(table).c_str());
        if (!run.left_out.empty()) printf("\n%s\n", left_out_text(run.left_out).c_str());
        if (!run.options.json.empty()) write_whole_file(run.options.json, {file.dump(1), "\n"});
    });
}
