// Runs the programs of the device report and writes their results as one page and one JSON file; compares two
// JSON files. Run by `make report`, or as:
//   build/report [--device auto] [--quick] [--out runs/report] [--only peak matmul_sweep]
//   build/report --compare A.json B.json
//   build/report --page runs/report/report.json

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <set>

#include "dev/report/child.h"
#include "dev/report/compare.h"
#include "dev/report/page.h"
#include "dev/report/plots.h"
#include "llmc/base/clock.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/os.h"
#include "llmc/base/output.h"
#include "llmc/base/signals.h"
#include "llmc/launchpad/device.h"
#include "llmc/options/command_line.h"
#include "llmc/options/start_program.h"
#include "llmc/run/progress.h"

namespace fs = std::filesystem;

struct MeasuringProgram {
    const char* name;
    double share;  // of the time; train_benchmark spends most of it compiling kernels if the cache is empty
};
static const MeasuringProgram measuring_programs[] = {{"peak", 2},
                                                      {"matmul_sweep", 3},
                                                      {"elementwise_sweep", 2},
                                                      {"dispatch_overhead", 1},
                                                      {"train_benchmark", 5}};

struct Options {
    std::string device = "auto", out = "runs/report", page, programs;
    bool quick = false;
    double seconds = 0;  // for all programs together; 0: depends on quick
    std::vector<std::string> only, compare;
};

static std::string date_text() {
    const std::time_t time = std::time(nullptr);
    char text[64];
    std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", std::gmtime(&time));
    return text;
}

// The folder of this program, which also holds the others; relative to the current folder if that is shorter.
static std::string own_folder() {
    std::error_code error;
    const fs::path own = program_path();
    if (own.empty()) fail("cannot find the folder of this program; give it with --programs");
    const std::string folder = own.parent_path().generic_string(),
                      relative = fs::relative(folder, error).generic_string();
    return !error && relative.size() < folder.size() ? relative : folder;
}

// --- running ---

// A status line, overwritten by the next one; on a terminal only.
static void show_status(const std::string& text) {
    if (on_terminal()) printf("\r\033[K%.100s", printable(text).c_str()), fflush(stdout);
}

static void say(const std::string& line) {
    if (on_terminal()) printf("\r\033[K");
    print_line(stdout, "%s", line.c_str());
    fflush(stdout);
}

// The last non-empty line, without the program's name before it.
static std::string last_line(std::string text, const std::string& program) {
    text.erase(text.find_last_not_of(" \r\n") + 1);
    text.erase(0, text.rfind('\n') + 1);
    return text.starts_with(program + ": ") ? text.substr(program.size() + 2) : text;
}

// Why a child failed, in one line; empty if it succeeded. `doing` is its last progress message.
static std::string failure_text(const ChildResult& child, const std::string& program, double limit,
                                const std::string& doing) {
    if (child.timed_out)
        return format_string("killed after its time limit of %.3g s", limit) +
               (doing.empty() ? "" : ", at: " + doing);
    if (child.status == 0) return "";
    const std::string line = last_line(child.err, program);
    if (child.status > 128)
        return format_string("ended by signal %d", child.status - 128) +
               (doing.empty() ? "" : ", at: " + doing);
    return line.empty() ? format_string("ended with status %d and no message", child.status) : line;
}

// When to kill a program: at its own limit it stops by itself, after the measurement at hand.
static double kill_limit(double limit) { return 2 + 1.5 * limit; }

// The file to which a program of the report writes.
static std::string part_file(const Options& options, const std::string& program) {
    return options.out + "/" + program + ".json";
}

static ReportPart run_part(const Options& options, const std::string& folder, const std::string& program,
                           double limit) {
    const std::string file = part_file(options, program);
    fs::remove(file);  // of an earlier run
    std::vector<std::string> argv = {folder + "/" + program, "--device", options.device, "--json", file};
    if (options.quick) argv.push_back("--quick");
    const std::string peaks = options.out + "/peak.json";
    if (program != "peak" && file_exists(peaks)) argv.insert(argv.end(), {"--peaks", peaks});
    argv.insert(argv.end(), {"--seconds", format_string("%.1f", limit)});
    ReportPart part = {.program = program, .command = command_text(argv)};
    const double start = now();
    try {
        std::string doing;
        show_status(program + " ...");
        const ChildResult child = run_child(argv, kill_limit(limit), "", [&](const std::string& line) {
            doing = line;
            show_status(format_string("%s (%.0f s): ", program.c_str(), now() - start) + line);
        });
        part.error = failure_text(child, program, kill_limit(limit), doing);
        if (part.error.empty()) part = read_report_part(file);
    } catch (const Error& error) {
        if (stop_signal()) throw;
        part.error = error.what();
    }
    part.seconds = now() - start;
    const size_t left_out = part.left_out.size();
    say(format_string("%-18s %6.1f s", program.c_str(), part.seconds) +
        (left_out ? format_string("  skipped for lack of time: %zu measurements", left_out) : "") +
        (part.error.empty() ? "" : "  FAILED: " + part.error));
    return part;
}

// Time limit of programs[at]: the time left, minus a fraction `kept` of the shares of the programs after it.
// So a slow program may exceed its share, but cannot use up all the time.
static double time_for(const std::vector<MeasuringProgram>& programs, size_t at, double total, double left,
                       double kept) {
    double all = 0, after = 0;
    for (size_t i = 0; i < programs.size(); i++) {
        all += programs[i].share;
        if (i > at) after += programs[i].share;
    }
    return std::max(1.0, left - kept * total * after / all);
}

static std::vector<MeasuringProgram> chosen_programs(const Options& options) {
    std::vector<MeasuringProgram> chosen;
    for (const MeasuringProgram& program : measuring_programs)
        if (options.only.empty() || std::count(options.only.begin(), options.only.end(), program.name))
            chosen.push_back(program);
    return chosen;
}

// --- writing ---

static bool is_report(const std::string& path) {
    read_report(path);
    return true;
}
static bool is_page(const std::string& path) { return begins_around(path, "<title>Device report"); }
static bool is_plot(const std::string& path) { return begins_around(path, "Produced by GNUPLOT"); }

static void check_outputs(const Options& options, const std::vector<MeasuringProgram>& programs) {
    for (const MeasuringProgram& program : programs)
        check_output(part_file(options, program.name), {}, is_report_part, Target::file);
    check_output(options.out + "/peak.json", {}, is_report_part, Target::file);
    check_output(options.out + "/report.json", {}, is_report, Target::file);
    check_output(options.out + "/report.html", {}, is_page, Target::file);
}

// The page, and each plot as an SVG file in the same folder.
static void write_page(const Report& report, const std::string& folder, const std::string& page) {
    std::string problem;
    write_whole_file(page, {report_page(report, problem)});
    for (const ReportPart& part : report.parts)
        for (size_t i = 0; i < part.plots.size() && problem.empty(); i++) {
            const Plot& plot = part.plots[i];
            const auto table = std::find_if(part.tables.begin(), part.tables.end(),
                                            [&](const Table& t) { return t.name == plot.table; });
            if (plot_curves(*table, plot).empty()) continue;
            const std::string picture = folder + "/" + part.program + format_string("_%zu.svg", i + 1);
            check_output(picture, {}, is_plot, Target::file);
            write_whole_file(picture, {plot_picture(*table, plot)});
        }
    if (!problem.empty()) print_line(stderr, "report: the page has no plots: %s", problem.c_str());
    print_line(stdout, "page: %s", page.c_str());
}

static void run_report(const Options& options, const std::string& command) {
    const std::vector<MeasuringProgram> programs = chosen_programs(options);
    choose_device(options.device);  // refuses an unknown one before anything runs
    const std::string folder = options.programs.empty() ? own_folder() : options.programs;
    const double total = options.seconds > 0 ? options.seconds : options.quick ? 55 : 570, start = now();
    create_folders(options.out);
    const FileWriter lock = lock_outputs(options.out + "/report");
    check_outputs(options, programs);
    fs::remove(options.out + "/peak.json");   // of an earlier run: sections refer to this run's peaks
    set_environment("REPORT_PROGRESS", "1");  // turns on ReportRun::progress()
    catch_stop_signals();
    Report report = {date_text(), command, options.quick};
    std::string failed;
    for (size_t i = 0; i < programs.size(); i++) {
        // a quick run keeps more of each program's share, since it has little time to spare
        const double kept = options.quick ? 0.8 : 0.5;
        const double limit = time_for(programs, i, total, start + total - now(), kept);
        report.parts.push_back(run_part(options, folder, programs[i].name, limit));
        if (!report.parts.back().error.empty())
            failed += std::string(failed.empty() ? "" : ", ") + programs[i].name;
    }
    write_whole_file(options.out + "/report.json", {report_text(report)});
    write_page(report, options.out, options.out + "/report.html");
    if (!failed.empty()) fail("failed: %s; the page has the results of the others", failed.c_str());
}

static void render_page(const Options& options) {
    const Report report = read_report(options.page);
    const fs::path path(options.page);
    const std::string folder = path.has_parent_path() ? path.parent_path().generic_string() : ".";
    const std::string page = folder + "/" + path.stem().generic_string() + ".html";
    check_output(page, {options.page}, is_page, Target::file);
    const FileWriter lock = lock_outputs(folder + "/report");
    write_page(report, folder, page);
}

static void add_options(CommandLine& line, Options& o) {
    std::set<std::string> names;
    for (const MeasuringProgram& program : measuring_programs) names.insert(program.name);
    line.add_device(o.device);
    line.add("--quick", o.quick, "fewer and smaller measurements, in about a minute");
    line.add("--seconds", o.seconds, "time limit for all programs together (0: 570, with --quick 55)")
        .between(0, 1e6);
    line.add("--out", o.out, "folder for the page, the JSON files and the plots").is(PathKind::file);
    line.add("--only", o.only, "run only these programs").one_of({names.begin(), names.end()}).list();
    line.add("--programs", o.programs, "folder of the programs (default: this program's)").is(PathKind::file);
    line.add("--compare", o.compare, "compare two reports, A.json and B.json, and exit")
        .is(PathKind::file)
        .is_long = true;
    line.add("--page", o.page, "render the page of an existing report.json, in its folder, and exit")
        .is(PathKind::file);
}

int main(int argc, char** argv) {
    start_program(argv);
    Options options;
    CommandLine line("report", "Measures the performance of this machine and writes a report page.");
    add_options(line, options);
    return line.run(argc, argv, [&] {
        if (!options.compare.empty() && options.compare.size() != 2) fail("--compare needs two files");
        if (!options.compare.empty() && !options.page.empty()) fail("--compare excludes --page");
        if (!options.compare.empty())
            fputs(compare_reports(read_report(options.compare[0]), read_report(options.compare[1])).c_str(),
                  stdout);
        else if (!options.page.empty())
            render_page(options);
        else
            run_report(options, command_text({argv, argv + argc}));
    });
}
