// A section of the report: a list of measurements, which fill tables. report.cpp lists the sections.
#pragma once
#include <functional>
#include <limits>
#include <memory>

#include "dev/report/report_file.h"
#include "llmc/launchpad/launchpad.h"
#include "llmc/launchpad/peak.h"

// The peaks that sections refer to; 0: not measured. A software device is compared with the CPU that it runs
// on.
struct MachinePeaks {
    Peaks cpu, gpu;  // the CPU's bf16_matrix_rate: its bf16 dot products
};

// What the measurements of a section run on.
struct ReportRun {
    bool quick = false;              // fewer and smaller measurements
    std::unique_ptr<LaunchPad> pad;  // null: the CPU alone
    MachinePeaks peaks = {};
    double end = std::numeric_limits<double>::infinity();  // of the section's time, in that of now()
    bool spends_the_rest = false;                          // the time that the sections left

    // Without a GPU: keep the work small.
    bool software() const { return !pad || pad->device().type == DeviceType::software; }
};

// Rows for the tables of these names.
using Rows = std::vector<std::pair<std::string, std::vector<Cell>>>;

struct Measurement {
    std::string what;               // for readers: "bf16 GEMM of size 500"
    double size;                    // takes at least as long as those of smaller size
    std::function<Rows()> measure;  // throws Error for a wrong result
    double expected = 0;            // seconds, at least
    bool done = false;
    double seconds = 0;
    Rows rows = {};
};

struct Section {
    std::string what;           // it measures, for readers
    std::vector<Table> tables;  // without rows
    std::vector<Plot> plots = {};
    std::vector<Measurement> measurements = {};
    // Sets notes, which may depend on all rows. May append tables.
    std::function<void(std::vector<Table>& tables)> finish = nullptr;
};

// Makes the measurements that are not done yet, in order, and leaves out those that would miss run.end. A
// measurement is expected to take as long as the longest of the completed ones of at most its size; with the
// time that is left at the end, as their median, or half of the only one, which may have compiled kernels.
void make_measurements(Section& section, ReportRun& run);

// The tables with the rows so far, in the order of the measurements, and what is left out.
void collect(const Section& section, ReportPart& part);

// Of a vector of tables.
Table& table_named(std::vector<Table>& tables, const std::string& name);

struct SectionKind {
    const char* name;
    double share;  // of the time
    std::function<Section(ReportRun& run)> make;
};

struct ReportOptions {
    std::string device = "auto";  // as train_gpt2's; "cpu": no GPU
    bool quick = false;
    double seconds = 0;  // for all sections together; 0: depends on quick
};

// Measures all sections. After each, save() receives the report so far. What a section left out for lack of
// time is measured at the end, if the others took less than their shares. An Error ends its section alone.
Report measure_sections(const ReportOptions& options, const std::vector<SectionKind>& kinds,
                        const std::string& command, const std::function<void(const Report&)>& save);

// A command line, quoted for the shell where necessary, and printable.
std::string command_text(int argc, char** argv);

// Device and driver, processor, threads, memory and operating system.
Machine describe_machine(const LaunchPad* pad);
