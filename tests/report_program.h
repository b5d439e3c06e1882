// What tests of the device report's programs share: a quick run that must succeed, and its JSON.
#pragma once
#include <gtest/gtest.h>

#include <cmath>

#include "dev/report/results.h"
#include "tests/run_program.h"

// Threads that wait without turning: on a busy machine small operations lose most of their time there.
inline const int patient_threads = setenv("OMP_WAIT_POLICY", "passive", 1);

// Where programs are to be run: on the CPU, and on the test device unless that is "none".
inline std::vector<std::string> report_devices() {
    const char* name = getenv("LLMC_TEST_DEVICE");
    const std::string device = name && *name ? name : "0";
    return device == "none" ? std::vector<std::string>{"cpu"} : std::vector<std::string>{"cpu", device};
}

struct ReportFile {
    std::vector<Table> tables;
    ProgramResult printed;

    const Table& table(const std::string& name) const {
        for (const Table& t : tables)
            if (t.name == name) return t;
        throw std::runtime_error("no table " + name);
    }
};

// Runs build/NAME --quick with these options, and reads what it writes as the report's reader does. Nothing
// may come on standard error: there the validation layer would speak.
inline ReportFile run_report(const std::string& name, const std::string& device,
                             std::vector<std::string> options) {
    TemporaryFolder folder;
    options.insert(options.begin(),
                   {BINARY_DIR "/" + name, "--quick", "--device", device, "--json", folder / "run.json"});
    ReportFile file;
    file.printed = run_program(options);
    EXPECT_EQ(file.printed.status, 0) << file.printed.err;
    EXPECT_EQ(file.printed.err, "");
    if (file.printed.status != 0) return file;
    const auto json = nlohmann::json::parse(read_text(folder / "run.json"));
    EXPECT_EQ(json["program"], name);
    for (const auto& table : json["tables"]) file.tables.push_back(table_from_json(table, name));
    std::vector<Plot> plots;
    for (const auto& plot : json["plots"]) plots.push_back(plot_from_json(plot, name));
    check_plots(plots, file.tables, name);
    return file;
}

inline size_t column_of(const Table& table, const std::string& name) {
    for (size_t i = 0; i < table.columns.size(); i++)
        if (table.columns[i].name == name) return i;
    throw std::runtime_error("no column " + name + " in " + table.name);
}

inline const Cell& cell_of(const Table& table, size_t row, const std::string& column) {
    return table.rows.at(row).at(column_of(table, column));
}

// Expects numbers above zero in a column, in every row.
inline void expect_positive(const Table& table, const std::string& column) {
    for (size_t row = 0; row < table.rows.size(); row++) {
        const Cell& cell = cell_of(table, row, column);
        ASSERT_TRUE(cell.is_number()) << table.name << ", " << column << ", row " << row << ": " << cell;
        EXPECT_TRUE(cell.get<double>() > 0 && std::isfinite(cell.get<double>()))
            << table.name << ", " << column << ", row " << row << ": " << cell;
    }
}
