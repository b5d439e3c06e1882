// What the programs of the device report have in common: each measures something, prints it as tables, and
// with --json FILE writes the same tables, which `report` draws, puts on a page and compares with another
// run's.
//
//     {"program": "peak", "command": "build/peak --quick", "device": {...}, "seconds": 12.3,
//      "tables": [{"name": "peaks", "title": "...", "note": "...",
//                  "columns": [{"name": "what", "key": true},
//                              {"name": "rate", "unit": "GB/s", "better": "more"}],
//                  "rows": [["copy", 3840.0], ...]}],
//      "left_out": ["copies of 1073741824 bytes"],
//      "plots": [{"table": "peaks", "title": "...", "x": "size", "y": "rate", "curves": "what",
//                 "log_x": true, "log_y": true}]}
#pragma once
#include <CLI/CLI.hpp>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "dev/report/tables.h"
#include "llmc/launchpad.h"

// The options that every program of the report takes.
struct ReportOptions {
    std::string device = "auto";  // as train_gpt2's; "cpu": no GPU
    std::string json;             // file to write; empty: none
    bool quick = false;           // fewer and smaller measurements
    double seconds = 0;           // that it may take, roughly; 0: as many as it needs
    int threads = 0;              // OpenMP threads; 0: as the environment says
};

// One program's run. For main():
//
//     return run_report_program("peak", "what the device does at most", argc, argv,
//                               [](CLI::App& app) { app.add_option(...); }, measure);
//
// measure(run) fills run.tables and run.plots, in steps, so that a run which has too little time ends early
// and in order.
struct ReportRun {
    ReportOptions options;
    std::unique_ptr<LaunchPad> pad;  // null: the CPU alone
    std::vector<Table> tables;
    std::vector<Plot> plots;
    std::vector<std::string> left_out;  // steps that there was no time for

    double end = std::numeric_limits<double>::infinity();  // when it should be done, by now()
    struct Step {
        double size, seconds;
    };
    std::vector<Step> steps;  // that were measured

    bool software() const { return !pad || pad->device().type == DeviceType::software; }  // be small
    void progress(const std::string& what) const;  // a line on standard error, where a person watches
    double seconds_left() const;
    // Measures `what` (for people) and returns true, unless there is no time: it is expected to take as long
    // as any step so far of its size or a smaller one (in the program's own unit), and `expected` seconds at
    // least. What is left out is noted in left_out.
    bool step(const std::string& what, double size, const std::function<void()>& measure,
              double expected = 0);
};

// Parses the options, opens the device, measures, prints the tables and writes the JSON, whole or not at all.
// Returns main's status: 0; 1 with one line on standard error where an Error was thrown, by a result that is
// wrong, too.
int run_report_program(const char* name, const char* what, int argc, char** argv,
                       const std::function<void(CLI::App&)>& add_options,
                       const std::function<void(ReportRun&)>& measure);

// An argument, and a whole command line, as one would type them: unusual characters in quotes.
std::string shell_word(const std::string& word);
std::string command_text(int argc, char** argv);

// Device and driver, the processor, its threads and memory, the system: what a figure must stand beside.
nlohmann::json describe_machine(const LaunchPad* pad);
