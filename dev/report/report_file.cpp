// Reading and writing reports: see report_file.h.
#include "dev/report/report_file.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "llmc/base/error.h"
#include "llmc/base/json.h"

using nlohmann::json;

// --- writing ---

static json to_json(const Cell& cell) {
    if (cell.is_null()) return nullptr;
    if (cell.is_text()) return cell.text();
    return cell.is_integer() ? json(cell.integer()) : json(cell.number());
}

static json to_json(const Column& column) {
    json object = {{"name", column.name}, {"digits", column.digits}};
    if (!column.unit.empty()) object["unit"] = column.unit;
    if (column.key) object["key"] = true;
    if (column.better != Better::neither) object["better"] = column.better == Better::more ? "more" : "less";
    return object;
}

template <class T>
static json to_json(const std::vector<T>& values) {
    json array = json::array();
    for (const T& value : values) array.push_back(to_json(value));
    return array;
}

static json to_json(const Table& table) {
    return {{"name", table.name},
            {"title", table.title},
            {"note", table.note},
            {"columns", to_json(table.columns)},
            {"rows", to_json(table.rows)}};
}

static json to_json(const Plot& plot) {
    return {{"table", plot.table},   {"title", plot.title}, {"x", plot.x},        {"y", plot.y},
            {"curves", plot.curves}, {"log_x", plot.log_x}, {"log_y", plot.log_y}};
}

static json to_json(const std::vector<Fact>& facts) {
    json object = json::object();
    for (const Fact& fact : facts) object[fact.name] = to_json(fact.value);
    return object;
}

static json to_json(const std::optional<Machine>& machine) {
    if (!machine) return nullptr;
    json object = to_json(machine->host);
    object["gpu"] = machine->gpu ? to_json(*machine->gpu) : json();
    return object;
}

static json to_json(const ReportPart& part) {
    return {{"program", part.program},        {"what", part.what},
            {"command", part.command},        {"error", part.error},
            {"seconds", part.seconds},        {"device", to_json(part.device)},
            {"tables", to_json(part.tables)}, {"plots", to_json(part.plots)},
            {"left_out", json(part.left_out)}};
}

json report_to_json(const Report& report) {
    return {{"date", report.date},
            {"command", report.command},
            {"quick", report.quick},
            {"programs", to_json(report.parts)}};
}

// --- reading: exceptions of the library say what is missing or of another type ---

// Calls `read` and puts `where` in front of its error.
template <class Read>
static auto within(const std::string& where, Read read) {
    try {
        return read();
    } catch (const json::exception& error) {
        fail("%s: %s", where.c_str(), json_reason(error).c_str());
    } catch (const Error& error) {
        fail("%s: %s", where.c_str(), error.what());
    }
}

static const json& array_at(const json& object, const char* name) {
    const json& array = object.at(name);
    if (!array.is_array()) fail("\"%s\" is no array, but %s", name, array.type_name());
    return array;
}

static std::string name_at(const json& object, const char* member) {
    const std::string name = object.at(member);
    const auto in_name = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
    if (name.empty() || name.size() > 64 || !std::all_of(name.begin(), name.end(), in_name))
        fail("\"%s\" is no name: lower case letters, digits and underscores", member);
    return name;
}

static Cell cell_from(const json& value) {
    if (value.is_null()) return nullptr;
    if (value.is_string()) return value.get<std::string>();
    if (!value.is_number() || !std::isfinite(value.get<double>()))
        fail("a cell is not a finite number, text or null");
    const bool too_large = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t(INT64_MAX);
    return value.is_number_integer() && !too_large ? Cell(value.get<int64_t>()) : Cell(value.get<double>());
}

static Column column_from(const json& object) {
    Column column = {.name = object.at("name"), .unit = object.value("unit", "")};
    if (column.name.empty()) fail("a column has no name");
    return within("column " + column.name, [&] {
        column.key = object.value("key", false);
        const std::string better = object.value("better", "");
        if (!better.empty() && better != "more" && better != "less")
            fail("\"better\" is neither \"more\" nor \"less\"");
        if (!better.empty()) column.better = better == "more" ? Better::more : Better::less;
        const double digits = object.value("digits", 4.0);
        if (!(digits >= 1 && digits <= 17)) fail("\"digits\" is not from 1 to 17");
        column.digits = int(digits);
        return column;
    });
}

static std::vector<Cell> row_from(const json& cells, const Table& table) {
    if (!cells.is_array() || cells.size() != table.columns.size())
        fail("a row is not a list of %zu cells, one for each column", table.columns.size());
    std::vector<Cell> row;
    for (size_t i = 0; i < cells.size(); i++)
        row.push_back(within("column " + table.columns[i].name, [&] { return cell_from(cells[i]); }));
    return row;
}

static Table table_from(const json& object) {
    Table table = {.name = name_at(object, "name"), .title = "", .columns = {}};
    return within("table " + table.name, [&] {
        table.title = object.at("title");
        table.note = object.value("note", "");
        std::set<std::string> names;
        for (const json& column : array_at(object, "columns")) {
            table.columns.push_back(column_from(column));
            if (!names.insert(table.columns.back().name).second)
                fail("two columns named %s", table.columns.back().name.c_str());
        }
        if (table.columns.empty()) fail("no columns");
        for (const json& row : array_at(object, "rows")) table.rows.push_back(row_from(row, table));
        return table;
    });
}

const Table& table_of(const ReportPart& part, const Plot& plot) {
    for (const Table& table : part.tables)
        if (table.name == plot.table) return table;
    fail("a plot refers to table %s, which does not exist", plot.table.c_str());
}

static Plot plot_from(const json& object, const ReportPart& part) {
    const Plot plot = {.table = object.at("table"),
                       .title = object.at("title"),
                       .x = object.at("x"),
                       .y = object.at("y"),
                       .curves = object.value("curves", ""),
                       .log_x = object.value("log_x", true),
                       .log_y = object.value("log_y", true)};
    for (const std::string& name : {plot.x, plot.y, plot.curves.empty() ? plot.x : plot.curves})
        find_column(table_of(part, plot), name);
    return plot;
}

static std::vector<Fact> facts_from(const json& object) {
    std::vector<Fact> facts;
    for (const auto& [name, value] : object.items())
        if (name != "gpu") facts.push_back({name, cell_from(value)});
    return facts;
}

static std::optional<Machine> machine_from(const json& object) {
    if (object.is_null()) return std::nullopt;
    Machine machine = {.gpu = {}, .host = facts_from(object)};
    const json gpu = object.value("gpu", json());
    if (!gpu.is_null()) machine.gpu = facts_from(gpu);
    return machine;
}

static ReportPart part_from(const json& object) {
    ReportPart part = {.program = name_at(object, "program")};
    return within(part.program, [&] {
        part.what = object.value("what", "");
        part.command = object.value("command", "");
        part.error = object.value("error", "");
        part.seconds = object.value("seconds", 0.0);
        part.device = machine_from(object.value("device", json()));
        std::set<std::string> names;
        for (const json& table : array_at(object, "tables")) {
            part.tables.push_back(table_from(table));
            if (!names.insert(part.tables.back().name).second)
                fail("two tables named %s", part.tables.back().name.c_str());
        }
        for (const json& plot : array_at(object, "plots")) part.plots.push_back(plot_from(plot, part));
        part.left_out = object.value("left_out", part.left_out);  // earlier versions did not write it
        return part;
    });
}

Report report_from_json(const json& object, const std::string& where) {
    if (!object.is_object() || !object.contains("programs"))
        fail("%s: not a report: it has no \"programs\" (build/report writes such files)", where.c_str());
    return within(where, [&] {
        Report report = {object.at("date"), object.value("command", ""), object.value("quick", false)};
        for (const json& part : array_at(object, "programs")) report.parts.push_back(part_from(part));
        return report;
    });
}

Report read_report(const std::string& path) { return report_from_json(read_json_object(path), path); }

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
