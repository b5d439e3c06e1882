// A report as a file: the results of each program, with date and options. `report` writes it, renders it and
// compares two of them. A single program's JSON file reads as a report of that program alone.
#pragma once
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
    std::string error;  // why there are no tables; empty: success
    double seconds = 0;
    std::optional<Machine> device = {};  // none if the program failed
    std::vector<Table> tables = {};
    std::vector<Plot> plots = {};
    std::vector<std::string> left_out = {};  // measurements skipped for lack of time
};

struct Report {
    std::string date, command;
    bool quick = false;
    std::vector<ReportPart> parts = {};
};

nlohmann::json report_to_json(const Report& report);
std::string report_text(const Report& report);  // the same, as text

// Both throw Error, naming the file, for anything but a report.
Report report_from_json(const nlohmann::json& json, const std::string& where);
Report read_report(const std::string& path);

// One program's file. Writing throws Error, naming the program, for what reading would refuse.
std::string report_part_text(const ReportPart& part);
ReportPart read_report_part(const std::string& path);
bool is_report_part(const std::string& path);  // true, or the Error of read_report_part()

// The value of a fact; null if there is none of that name.
Cell find_fact(const std::vector<Fact>& facts, const std::string& name);

// "NVIDIA H200" or, without a GPU, the name of the processor; empty if no program succeeded.
std::string device_name(const Report& report);
