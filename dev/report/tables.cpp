// Tables as text: see tables.h.
#include "dev/report/tables.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/error.h"

Cell number(double value) { return std::isfinite(value) ? Cell(value) : Cell(nullptr); }

size_t find_column(const Table& table, const std::string& name) {
    for (size_t i = 0; i < table.columns.size(); i++)
        if (table.columns[i].name == name) return i;
    fail("table %s has no column \"%s\"", table.name.c_str(), name.c_str());
}

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
