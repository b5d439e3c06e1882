// Reading and writing reports: see report_file.h.
#include "dev/report/report_file.h"

#include <algorithm>

#include "dev/report/json_members.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"

using nlohmann::json;

static json facts_to_json(const std::vector<Fact>& facts) {
    json object = json::object();
    for (const Fact& fact : facts) object[fact.name] = cell_to_json(fact.value);
    return object;
}

// Members that are no text, number or null do not occur in a machine's description and are dropped.
static std::vector<Fact> facts_from_json(const json& object) {
    std::vector<Fact> facts;
    for (const auto& [name, value] : object.items())
        if (value.is_string() || value.is_number() || value.is_null())
            facts.push_back({name, cell_from_json(value)});
    return facts;
}

static json machine_to_json(const std::optional<Machine>& machine) {
    if (!machine) return nullptr;
    json object = facts_to_json(machine->host);
    object["gpu"] = machine->gpu ? facts_to_json(*machine->gpu) : json();
    return object;
}

static Machine machine_from_json(json object) {
    Machine machine;
    if (const json gpu = object.value("gpu", json()); gpu.is_object()) machine.gpu = facts_from_json(gpu);
    object.erase("gpu");
    machine.host = facts_from_json(object);
    return machine;
}

static json part_to_json(const ReportPart& part) {
    json tables = json::array(), plots = json::array();
    for (const Table& table : part.tables) tables.push_back(table_to_json(table));
    for (const Plot& plot : part.plots) plots.push_back(plot_to_json(plot));
    return {{"program", part.program}, {"what", part.what},       {"command", part.command},
            {"error", part.error},     {"seconds", part.seconds}, {"device", machine_to_json(part.device)},
            {"tables", tables},        {"plots", plots},          {"left_out", part.left_out}};
}

static ReportPart part_from_json(const json& object, const std::string& where) {
    ReportPart part;
    part.program = text_member(object, "program", where);
    const auto in_name = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
    if (part.program.empty() || part.program.size() > 64 ||
        !std::all_of(part.program.begin(), part.program.end(), in_name))
        fail("%s: \"program\" is no name of a program: lower case letters, digits and underscores",
             where.c_str());  // it becomes part of file names
    const std::string here = where + ": " + part.program;
    part.what = text_or(object, "what", here);
    part.command = text_member(object, "command", here);
    part.error = text_or(object, "error", here);
    part.seconds = number_or(object, "seconds", 0, here);
    if (object.contains("device") && !object["device"].is_null())
        part.device = machine_from_json(member(object, "device", json::value_t::object, here));
    for (const json& table : member(object, "tables", json::value_t::array, here))
        part.tables.push_back(table_from_json(table, here));
    for (const json& plot : member(object, "plots", json::value_t::array, here))
        part.plots.push_back(plot_from_json(plot, here));
    check_plots(part.plots, part.tables, here);
    if (object.contains("left_out"))  // earlier versions did not write it
        for (const json& what : member(object, "left_out", json::value_t::array, here)) {
            if (!what.is_string()) fail("%s: \"left_out\" holds something other than strings", here.c_str());
            part.left_out.push_back(what);
        }
    return part;
}

json report_to_json(const Report& report) {
    json parts = json::array();
    for (const ReportPart& part : report.parts) parts.push_back(part_to_json(part));
    return {{"date", report.date}, {"command", report.command}, {"quick", report.quick}, {"programs", parts}};
}

std::string report_text(const Report& report) { return report_to_json(report).dump(1) + "\n"; }

Report report_from_json(const json& object, const std::string& where) {
    if (!object.is_object() || !(object.contains("programs") || object.contains("program")))
        fail("%s: not a report: it has neither \"programs\" nor \"program\" (build/report writes such files)",
             where.c_str());
    Report report;
    if (!object.contains("programs")) {
        report.parts = {part_from_json(object, where)};
        report.command = report.parts[0].command;
        return report;
    }
    report.date = text_member(object, "date", where);
    report.command = text_or(object, "command", where);
    report.quick = flag_or(object, "quick", false, where);
    for (const json& part : member(object, "programs", json::value_t::array, where))
        report.parts.push_back(part_from_json(part, where));
    return report;
}

static json read_json(const std::string& path) {
    return parse_json_object(read_whole_file(path, max_json_bytes), path);
}

Report read_report(const std::string& path) { return report_from_json(read_json(path), path); }

ReportPart read_report_part(const std::string& path) { return part_from_json(read_json(path), path); }

bool is_report_part(const std::string& path) {
    read_report_part(path);
    return true;
}

std::string report_part_text(const ReportPart& part) {
    for (const Table& table : part.tables) table_from_json(table_to_json(table), part.program);
    check_plots(part.plots, part.tables, part.program);
    return part_to_json(part).dump(1) + "\n";
}

Cell find_fact(const std::vector<Fact>& facts, const std::string& name) {
    for (const Fact& fact : facts)
        if (fact.name == name) return fact.value;
    return nullptr;
}

std::string device_name(const Report& report) {
    for (const ReportPart& part : report.parts) {
        if (!part.device) continue;
        const bool gpu = part.device->gpu.has_value();
        const Cell name = gpu ? find_fact(*part.device->gpu, "name") : find_fact(part.device->host, "cpu");
        if (!name.is_text()) fail("%s: \"%s\" is missing", part.program.c_str(), gpu ? "name" : "cpu");
        return name.text();
    }
    return "";
}
