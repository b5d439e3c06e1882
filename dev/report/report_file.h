// A whole report as a file: what each program gave, with the date and the options. `report` writes it, draws
// it and compares two of it; one program's own JSON is read as a report of that program alone.
#pragma once
#include "dev/report/tables.h"

struct ReportPart {
    std::string program, what, command;
    std::string error;  // why there are no tables; empty: it went well
    double seconds = 0;
    nlohmann::json device;  // as describe_machine() gives it; null where the program failed
    std::vector<Table> tables = {};
    std::vector<Plot> plots = {};
    std::vector<std::string> left_out = {};  // what there was no time to measure
};

struct Report {
    std::string date, command;
    bool quick = false;
    std::vector<ReportPart> parts = {};
};

nlohmann::json report_to_json(const Report& report);

// Both throw Error, naming the file, for anything but a report.
Report report_from_json(const nlohmann::json& json, const std::string& where);
Report read_report(const std::string& path);

// The same of one program's file.
ReportPart read_report_part(const std::string& path);

// "NVIDIA H200" or, without a GPU, the processor's name; empty if no program told.
std::string device_name(const Report& report);
