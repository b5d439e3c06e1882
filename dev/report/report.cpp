// Measures this machine, and writes the results as one page and one JSON file; compares two JSON files. Run
// by `make report`, or as:
//   build/report [--device auto] [--quick] [--out runs/report] [--only peak,matmul_sweep]
//   build/report --compare A.json B.json
//   build/report --page runs/report/report.json
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "dev/report/compare.h"
#include "dev/report/page.h"
#include "dev/report/sections.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/output.h"
#include "llmc/options/command_line.h"
#include "llmc/options/start_program.h"

// train_benchmark spends most of its time compiling kernels if the cache is empty.
static const std::vector<SectionKind> section_kinds = {
    {"peak", 3, peak_section},
    {"matmul_sweep", 3, [](ReportRun& run) { return matmul_section(run); }},
    {"elementwise_sweep", 2, [](ReportRun& run) { return elementwise_section(run); }},
    {"train_benchmark", 5, [](ReportRun& run) { return training_section(run); }}};

struct Options {
    ReportOptions report;
    std::string out = "runs/report", page;
    std::vector<std::string> only, compare;
};

static bool is_report(const std::string& path) {
    read_report(path);
    return true;
}
static bool is_page(const std::string& path) { return begins_around(path, "<title>Device report"); }

static void run_report(const Options& options, const std::string& command) {
    std::vector<SectionKind> kinds;
    for (const SectionKind& kind : section_kinds)
        if (options.only.empty() || std::count(options.only.begin(), options.only.end(), kind.name))
            kinds.push_back(kind);
    choose_device(options.report.device);  // refuses an unknown one before a folder is created
    create_folders(options.out);
    const std::string file = options.out + "/report.json", page = options.out + "/report.html";
    const FileWriter lock = lock_outputs(options.out + "/report");
    check_output(file, {}, is_report, Target::file);
    check_output(page, {}, is_page, Target::file);
    for (const std::string& path : {file, page}) check_can_move(path);
    const auto save = [&](const Report& report) {
        write_whole_file(file, {json_text(report_to_json(report), 1), "\n"});
        write_whole_file(page, {report_page(report)});
    };
    const Report report = measure_sections(options.report, kinds, command, save);
    std::string failed;
    for (const ReportPart& part : report.parts) {
        if (!options.only.empty())
            for (const Table& table : part.tables) printf("\n%s", table_text(table).c_str());
        if (!part.error.empty()) failed += (failed.empty() ? "" : ", ") + part.program;
    }
    print_line(stdout, "page: %s", page.c_str());
    if (!failed.empty()) fail("failed: %s; the page has the results of the others", failed.c_str());
}

static void render_page(const std::string& file) {
    const Report report = read_report(file);
    const std::string page = std::filesystem::path(file).replace_extension(".html").generic_string();
    check_output(page, {file}, is_page, Target::file);
    write_whole_file(page, {report_page(report)});
    print_line(stdout, "page: %s", page.c_str());
}

int main(int argc, char** argv) {
    start_program(argv);
    Options o;
    std::vector<std::string> names;
    for (const SectionKind& kind : section_kinds) names.push_back(kind.name);
    CommandLine line("report", "Measures the performance of this machine and writes a report page.");
    line.add_device(o.report.device);
    line.add("--quick", o.report.quick, "fewer and smaller measurements, in about a minute");
    line.add("--seconds", o.report.seconds, "time limit (0: 570, with --quick 55)").between(0, 1e6);
    line.add("--out", o.out, "folder for the page and the JSON file").is(PathKind::file);
    line.add("--only", o.only, "only these sections, whose tables are printed, too").one_of(names).list();
    line.add("--compare", o.compare, "compare two reports, A.json and B.json, and exit")
        .is(PathKind::file)
        .is_long = true;
    line.add("--page", o.page, "write the page of an existing report.json beside it, and exit")
        .is(PathKind::file);
    return line.run(argc, argv, [&] {
        if (!o.compare.empty() && o.compare.size() != 2) fail("--compare needs two files");
        if (!o.compare.empty() && !o.page.empty()) fail("--compare excludes --page");
        if (!o.compare.empty())
            fputs(compare_reports(read_report(o.compare[0]), read_report(o.compare[1])).c_str(), stdout);
        else if (!o.page.empty())
            render_page(o.page);
        else
            run_report(o, command_text(argc, argv));
    });
}
