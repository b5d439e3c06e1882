// Shared by the tests of the report programs: a quick run that must succeed, and its results.
#pragma once
#include <gtest/gtest.h>

#include <cmath>

#include "dev/report/report_file.h"
#include "llmc/base/file.h"
#include "tests/run_program.h"

// OpenMP threads block instead of spinning: on a busy machine, spinning slows small operations down.
inline const int blocking_threads = setenv("OMP_WAIT_POLICY", "passive", 1);

// The devices on which to run programs: the CPU, and the test device unless that is "none".
inline std::vector<std::string> report_devices() {
    const char* name = getenv("LLMC_TEST_DEVICE");
    const std::string device = name && *name ? name : "0";
    return device == "none" ? std::vector<std::string>{"cpu"} : std::vector<std::string>{"cpu", device};
}

struct ReportFile {
    std::vector<Table> tables;
    ProgramResult printed;

    const Table* find(const std::string& name) const {
        for (const Table& t : tables)
            if (t.name == name) return &t;
        return nullptr;
    }
    const Table& table(const std::string& name) const {
        if (const Table* found = find(name)) return *found;
        throw std::runtime_error("no table " + name);
    }
};

// Runs build/NAME --quick with these options and reads its file as the report does. Standard error must stay
// empty: the validation layer prints there.
inline ReportFile run_report(const std::string& name, const std::string& device,
                             std::vector<std::string> options = {}) {
    TemporaryFolder folder;
    options.insert(options.begin(),
                   {BINARY_DIR "/" + name, "--quick", "--device", device, "--json", folder / "run.json"});
    ReportFile file;
    file.printed = run_program(options);
    EXPECT_EQ(file.printed.status, 0) << file.printed.err;
    EXPECT_EQ(file.printed.err, "");
    if (file.printed.status != 0) return file;
    const ReportPart part = read_report_part(folder / "run.json");
    EXPECT_EQ(part.program, name);
    file.tables = part.tables;
    return file;
}

// A result of `peak`, for --peaks: on the CPU 100 GB/s, 123 TFLOP/s in fp32 and 246 in bf16.
inline void write_peaks(const std::string& path) {
    ReportPart part = {.program = "peak"};
    const std::vector<Column> columns = {{"where", "", true}, {"what", "", true}, {"rate"}};
    part.tables = {
        {"arithmetic", "", columns, {{"CPU", "fp32 FMA", 123.0}, {"CPU", "bf16 dot product", 246.0}}},
        {"bandwidth", "", columns, {{"CPU", "in place (read + write)", 100.0}}}};
    part.device = Machine{{}, {{"cpu", "a processor"}}};
    write_whole_file(path, {report_part_text(part)});
}

inline size_t column_of(const Table& table, const std::string& name) {
    for (size_t i = 0; i < table.columns.size(); i++)
        if (table.columns[i].name == name) return i;
    throw std::runtime_error("no column " + name + " in " + table.name);
}

inline const Cell& cell_of(const Table& table, size_t row, const std::string& column) {
    return table.rows.at(row).at(column_of(table, column));
}

// Expects a positive, finite number in every row of a column.
inline void expect_positive(const Table& table, const std::string& column) {
    for (size_t row = 0; row < table.rows.size(); row++) {
        const Cell& cell = cell_of(table, row, column);
        ASSERT_TRUE(cell.is_number()) << table.name << ", " << column << ", row " << row;
        EXPECT_TRUE(cell.number() > 0 && std::isfinite(cell.number()))
            << table.name << ", " << column << ", row " << row << ": " << cell.number();
    }
}
