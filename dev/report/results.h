// What the programs of the device report have in common: each measures something, prints it as tables, and
// with --json FILE writes the same tables, which `report` draws, puts on a page and compares with another
// run's.
//
// A table is in long form: one row per measurement; key columns say what was measured, the others what came
// out. A plot is a view of a table: column y over column x, one curve for each value of the column `curves`.
//
//     {"program": "peak", "command": "build/peak --quick", "device": {...}, "seconds": 12.3,
//      "tables": [{"name": "peaks", "title": "...", "note": "...",
//                  "columns": [{"name": "what", "key": true},
//                              {"name": "rate", "unit": "GB/s", "better": "more"}],
//                  "rows": [["copy", 3840.0], ...]}],
//      "plots": [{"table": "peaks", "title": "...", "x": "size", "y": "rate", "curves": "what",
//                 "log_x": true, "log_y": true}]}
#pragma once
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "llmc/launchpad.h"

enum class Better { neither, more, less };

struct Column {
    std::string name;
    std::string unit = "";            // printed in the heading
    bool key = false;                 // what was measured; rows of two runs are compared where all keys agree
    Better better = Better::neither;  // which way a change is good; a ratio is given unless neither
    int digits = 4;                   // significant ones, of numbers
};

// Number, text, or null: not measured, such as a product that the device has no matrix cores for.
using Cell = nlohmann::json;

struct Table {
    std::string name;   // unique in its program: lower case, underscores
    std::string title;  // for people
    std::vector<Column> columns;
    std::vector<std::vector<Cell>> rows = {};
    std::string note = "";  // what follows from it, such as a crossover; for people
};

struct Plot {
    std::string table, title;
    std::string x, y, curves;  // names of columns; curves: empty for one curve alone
    bool log_x = true, log_y = true;
};

// The options that every program of the report takes.
struct ReportOptions {
    std::string device = "auto";  // as train_gpt2's; "cpu": no GPU
    std::string json;             // file to write; empty: none
    bool quick = false;           // fewer and smaller measurements
    int threads = 0;              // OpenMP threads; 0: as the environment says
};

// One program's run. For main():
//
//     return run_report_program("peak", "what the device does at most", argc, argv,
//                               [](CLI::App& app) { app.add_option(...); }, measure);
//
// measure(run) fills run.tables and run.plots.
struct ReportRun {
    ReportOptions options;
    std::unique_ptr<LaunchPad> pad;  // null: the CPU alone
    std::vector<Table> tables;
    std::vector<Plot> plots;

    bool software() const { return !pad || pad->device().type == DeviceType::software; }  // be small
    void progress(const std::string& what) const;  // a line on standard error, where a person watches
};

// Parses the options, opens the device, measures, prints the tables and writes the JSON, whole or not at all.
// Returns main's status: 0; 1 with one line on standard error where an Error was thrown, by a result that is
// wrong, too.
int run_report_program(const char* name, const char* what, int argc, char** argv,
                       const std::function<void(CLI::App&)>& add_options,
                       const std::function<void(ReportRun&)>& measure);

// The run as JSON and back; the latter throws Error, naming `where`, for anything but what the former gives.
nlohmann::json table_to_json(const Table& table);
Table table_from_json(const nlohmann::json& json, const std::string& where);
nlohmann::json plot_to_json(const Plot& plot);
Plot plot_from_json(const nlohmann::json& json, const std::string& where);

// Throws Error, naming `where`, for two tables of one name and for plots of tables or columns that are not
// there.
void check_plots(const std::vector<Plot>& plots, const std::vector<Table>& tables, const std::string& where);

// A cell as text: numbers with the column's significant digits ("1.235e+09" only where plain digits would be
// longer than 9), null as "-".
std::string cell_text(const Cell& cell, const Column& column);

// Whether any of the column's cells is text: such columns are aligned to the left.
bool is_text_column(const Table& table, size_t column);

// The table for a terminal: columns aligned, a line for the heading, the note below.
std::string table_text(const Table& table);

// An argument, and a whole command line, as one would type them: unusual characters in quotes.
std::string shell_word(const std::string& word);
std::string command_text(int argc, char** argv);

// Device and driver, the processor, its threads and memory, the system: what a figure must stand beside.
nlohmann::json describe_machine(const LaunchPad* pad);
