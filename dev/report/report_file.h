// A report as JSON: the results of each section, with date and options. `report` writes it, renders it as a
// page, and compares two of them.
//
//     {"date": "...", "command": "build/report", "quick": false, "programs": [
//      {"program": "peak", "what": "...", "command": "...", "error": "", "seconds": 12.3, "device": {...},
//       "tables": [{"name": "peaks", "title": "...", "note": "...",
//                   "columns": [{"name": "what", "key": true},
//                               {"name": "rate", "unit": "GB/s", "better": "more"}],
//                   "rows": [["copy", 3840.0], ...]}],
//       "plots": [{"table": "peaks", "title": "...", "x": "size", "y": "rate", "curves": "what",
//                  "log_x": true, "log_y": true}],
//       "left_out": ["copies of 1073741824 bytes"]}]}
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "dev/report/tables.h"

// A property of a machine, such as {"memory_bytes", 150754820096}.
struct Fact {
    std::string name;
    Cell value;
};

struct Machine {
    std::optional<std::vector<Fact>> gpu;  // none: the CPU alone
    std::vector<Fact> host;                // processor, memory, system
};

struct ReportPart {
    std::string program, what, command;
    std::string error;  // why it ended early; empty: success
    double seconds = 0;
    std::optional<Machine> device = {};  // none if it could not be opened
    std::vector<Table> tables = {};
    std::vector<Plot> plots = {};
    std::vector<std::string> left_out = {};  // measurements for which the time seemed too short
};

struct Report {
    std::string date, command;
    bool quick = false;
    std::vector<ReportPart> parts = {};
};

nlohmann::json report_to_json(const Report& report);

// Both throw Error, naming the file, for anything that report_to_json() does not produce.
Report report_from_json(const nlohmann::json& json, const std::string& where);
Report read_report(const std::string& path);

// The value of a fact; null if there is none of that name.
Cell find_fact(const std::vector<Fact>& facts, const std::string& name);

// "NVIDIA H200" or, without a GPU, the name of the processor; empty if no section succeeded.
std::string device_name(const Report& report);

const Table& table_of(const ReportPart& part, const Plot& plot);
