// The frame of a report program: it measures something, prints the results as tables, and with --json FILE
// writes the same tables, which `report` renders as a page and compares with another run's.
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
#include <limits>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "dev/report/report_file.h"
#include "llmc/launchpad/launchpad.h"

// The options that every report program takes.
struct CommonOptions {
    std::string device = "auto";  // as train_gpt2's; "cpu": no GPU
    std::string json;             // output file; empty: none
    std::string peaks;            // JSON file of the program `peak`; empty: peaks are measured again
    bool quick = false;           // fewer and smaller measurements
    double seconds = 0;           // approximate time limit; 0: none
};

// One run of a program. measure(run) fills run.tables and run.plots in steps, so that a run with a time limit
// skips the steps that no longer fit.
struct ReportRun {
    CommonOptions options;
    std::unique_ptr<LaunchPad> pad;  // null: the CPU alone
    std::vector<Table> tables;
    std::vector<Plot> plots;
    std::vector<std::string> left_out;  // steps skipped for lack of time

    double end = std::numeric_limits<double>::infinity();  // deadline, in the time of now()
    struct Step {
        double size, seconds;
    };
    std::vector<Step> steps;  // completed ones

    bool software() const {
        return !pad || pad->device().type == DeviceType::software;
    }  // keep the work small
    void progress(
        const std::string& what) const;  // a line on standard error, if a person or `report` reads it
    double seconds_left() const;
    // Calls `measure` and returns true, unless the step would miss the deadline: then it notes `what` in
    // left_out. The expected time is the longest of the completed steps of at most this size (in a unit of
    // the program's choice), and at least `expected` seconds.
    bool step(const std::string& what, double size, const std::function<void()>& measure,
              double expected = 0);
};

// An option that one program has in addition: a list of values, separated by commas.
struct ReportOption {
    const char* name;  // "--sizes"
    const char* help;  // empty: an option for tests, which --help does not list
    // Receives the values; holds the default before.
    std::variant<std::vector<std::string>*, std::vector<double>*, std::vector<int>*> values;
    std::vector<std::string> allowed = {};  // texts that are accepted; empty: any
    double min = 0, max = 0;                // range of numbers; equal: any
};

struct ReportProgram {
    const char* name;
    const char* what;  // it measures, for --help and the page
    std::vector<ReportOption> options = {};
    std::function<void(ReportRun&)> measure;
};

// Parses the options, opens the device, measures, prints the tables and writes the JSON, entirely or not at
// all. Returns the exit status: 0, or 1 with one line on standard error if an Error was thrown, also for a
// wrong result.
int run_report_program(const ReportProgram& program, int argc, char** argv);

// Device and driver, processor, threads, memory and operating system.
Machine describe_machine(const LaunchPad* pad);
