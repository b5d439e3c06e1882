// Tables as JSON and as text: see tables.h.
#include "dev/report/tables.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "dev/report/json_members.h"
#include "llmc/base/error.h"

using nlohmann::json;

// --- JSON ---

static const char* better_name(Better better) { return better == Better::more ? "more" : "less"; }

json table_to_json(const Table& table) {
    json columns = json::array(), rows = json::array();
    for (const Column& column : table.columns) {
        json c = {{"name", column.name}, {"digits", column.digits}};
        if (!column.unit.empty()) c["unit"] = column.unit;
        if (column.key) c["key"] = true;
        if (column.better != Better::neither) c["better"] = better_name(column.better);
        columns.push_back(c);
    }
    for (const std::vector<Cell>& row : table.rows) {
        json cells = json::array();
        for (const Cell& cell : row) cells.push_back(cell_to_json(cell));
        rows.push_back(cells);
    }
    return {{"name", table.name},
            {"title", table.title},
            {"note", table.note},
            {"columns", columns},
            {"rows", rows}};
}

static Column column_from_json(const json& object, const std::string& where) {
    Column column;
    column.name = text_member(object, "name", where);
    if (column.name.empty()) fail("%s: a column has no name", where.c_str());
    column.unit = text_or(object, "unit", where);
    column.key = flag_or(object, "key", false, where);
    const std::string better = text_or(object, "better", where);
    if (!better.empty() && better != "more" && better != "less")
        fail("%s: \"better\" is neither \"more\" nor \"less\" in column %s", where.c_str(),
             column.name.c_str());
    if (!better.empty()) column.better = better == "more" ? Better::more : Better::less;
    if (object.contains("digits")) {
        const json& digits = object["digits"];
        if (!digits.is_number_integer() || digits < 1 || digits > 17)
            fail("%s: \"digits\" is not an integer from 1 to 17 in column %s", where.c_str(),
                 column.name.c_str());
        column.digits = digits;
    }
    return column;
}

static std::vector<Cell> row_from_json(const json& cells, const Table& table, const std::string& where) {
    if (!cells.is_array() || cells.size() != table.columns.size())
        fail("%s: a row is not a list of %zu cells, one for each column", where.c_str(),
             table.columns.size());
    std::vector<Cell> row;
    for (size_t i = 0; i < cells.size(); i++) {
        const bool good = cells[i].is_string() || cells[i].is_null() ||
                          (cells[i].is_number() && std::isfinite(cells[i].get<double>()));
        if (!good)
            fail("%s: a cell of column %s is not a finite number, text or null", where.c_str(),
                 table.columns[i].name.c_str());
        row.push_back(cell_from_json(cells[i]));
    }
    return row;
}

Table table_from_json(const json& object, const std::string& where) {
    Table table;
    table.name = text_member(object, "name", where);
    const auto in_name = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
    if (table.name.empty() || !std::all_of(table.name.begin(), table.name.end(), in_name))
        fail("%s: the name of a table has characters other than lower case letters, digits and underscores",
             where.c_str());
    const std::string here = where + ": table " + table.name;
    table.title = text_member(object, "title", here);
    table.note = text_or(object, "note", here);
    std::set<std::string> names;
    for (const json& column : member(object, "columns", json::value_t::array, here)) {
        table.columns.push_back(column_from_json(column, here));
        if (!names.insert(table.columns.back().name).second)
            fail("%s: two columns named %s", here.c_str(), table.columns.back().name.c_str());
    }
    if (table.columns.empty()) fail("%s: no columns", here.c_str());
    for (const json& row : member(object, "rows", json::value_t::array, here))
        table.rows.push_back(row_from_json(row, table, here));
    return table;
}

json plot_to_json(const Plot& plot) {
    return {{"table", plot.table},   {"title", plot.title}, {"x", plot.x},        {"y", plot.y},
            {"curves", plot.curves}, {"log_x", plot.log_x}, {"log_y", plot.log_y}};
}

Plot plot_from_json(const json& object, const std::string& where) {
    Plot plot;
    plot.table = text_member(object, "table", where);
    const std::string here = where + ": a plot of table " + plot.table;
    plot.title = text_member(object, "title", here);
    plot.x = text_member(object, "x", here);
    plot.y = text_member(object, "y", here);
    plot.curves = text_or(object, "curves", here);
    plot.log_x = flag_or(object, "log_x", plot.log_x, here);
    plot.log_y = flag_or(object, "log_y", plot.log_y, here);
    return plot;
}

void check_plots(const std::vector<Plot>& plots, const std::vector<Table>& tables, const std::string& where) {
    std::set<std::string> names;
    for (const Table& table : tables)
        if (!names.insert(table.name).second)
            fail("%s: two tables named %s", where.c_str(), table.name.c_str());
    for (const Plot& plot : plots) {
        const auto table =
            std::find_if(tables.begin(), tables.end(), [&](const Table& t) { return t.name == plot.table; });
        if (table == tables.end())
            fail("%s: a plot refers to table %s, which does not exist", where.c_str(), plot.table.c_str());
        std::vector<std::string> needed = {plot.x, plot.y};
        if (!plot.curves.empty()) needed.push_back(plot.curves);
        for (const std::string& name : needed) {
            const bool found = std::any_of(table->columns.begin(), table->columns.end(),
                                           [&](const Column& column) { return column.name == name; });
            if (!found)
                fail("%s: a plot of table %s refers to column \"%s\", which does not exist", where.c_str(),
                     plot.table.c_str(), name.c_str());
        }
    }
}

// --- text ---

// "2.50" becomes "2.5", "1.000e+09" "1e+09".
static std::string without_zeros(const std::string& number) {
    if (number.find('.') == std::string::npos) return number;
    const size_t end = std::min(number.find('e'), number.size());
    size_t digits = number.find_last_not_of('0', end - 1) + 1;
    if (number[digits - 1] == '.') digits--;
    return number.substr(0, digits) + number.substr(end);
}

// The value with `digits` significant digits, without an exponent.
static std::string plain_text(double value, int digits) {
    const std::string rounded = format_string("%.*e", digits - 1, value);
    const int exponent = atoi(rounded.c_str() + rounded.find('e') + 1);
    return format_string("%.*f", std::max(0, digits - 1 - exponent), strtod(rounded.c_str(), nullptr));
}

std::string cell_text(const Cell& cell, const Column& column) {
    if (cell.is_text()) return cell.text();
    if (!cell.is_number()) return "-";
    const double value = cell.number();
    std::string text = cell.is_integer() ? std::to_string(cell.integer())
                       : value == 0      ? "0"
                                         : plain_text(value, column.digits);
    // parameters are shown as short as possible, results with all their digits
    if (column.key) text = without_zeros(text);
    const size_t longest = value < 0 ? 10 : 9;
    if (text.size() <= longest) return text;
    text = format_string("%.*e", column.digits - 1, value);
    return column.key ? without_zeros(text) : text;
}

static std::string heading(const Column& column) {
    return column.unit.empty() ? column.name : column.name + " (" + column.unit + ")";
}

// Width in characters: UTF-8 continuation bytes do not count.
static size_t width(const std::string& text) {
    return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

static std::string padded(const std::string& text, size_t to, bool right) {
    const std::string space(to - std::min(to, width(text)), ' ');
    return right ? space + text : text + space;
}

bool is_text_column(const Table& table, size_t column) {
    return std::any_of(table.rows.begin(), table.rows.end(),
                       [&](const std::vector<Cell>& row) { return row[column].is_text(); });
}

std::string table_text(const Table& table) {
    std::vector<std::string> lines(table.rows.size() + 1);
    for (size_t c = 0; c < table.columns.size(); c++) {
        std::vector<std::string> cells = {printable(heading(table.columns[c]))};
        for (const std::vector<Cell>& row : table.rows)
            cells.push_back(printable(cell_text(row[c], table.columns[c])));
        size_t widest = 0;
        for (const std::string& cell : cells) widest = std::max(widest, width(cell));
        for (size_t r = 0; r < cells.size(); r++)
            lines[r] += (c ? "  " : "") + padded(cells[r], widest, !is_text_column(table, c));
    }
    std::string text = printable(table.title) + "\n";
    for (std::string& line : lines) text += line.erase(line.find_last_not_of(' ') + 1) + "\n";
    if (!table.note.empty()) text += printable(table.note) + "\n";
    return text;
}
