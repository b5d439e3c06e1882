// Tables of measurements, and plots of them: what the report's programs print, keep as JSON, draw and
// compare.
//
// A table is in long form: one row per measurement; key columns say what was measured, the others what came
// out. A plot is a view of a table: column y over column x, one curve for each value of the column `curves`.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

enum class Better { neither, more, less };

struct Column {
    std::string name;
    std::string unit = "";            // printed in the heading
    bool key = false;                 // what was measured; rows of two runs are compared where all keys agree
    Better better = Better::neither;  // which way a change is good; a ratio is given unless neither
    int digits = 4;                   // significant ones, of numbers
};

// Number, text, or null: not measured, such as a product that the device has no matrix cores for.
using Cell = nlohmann::json;

struct Table {
    std::string name;   // unique in its program: lower case, underscores
    std::string title;  // for people
    std::vector<Column> columns;
    std::vector<std::vector<Cell>> rows = {};
    std::string note = "";  // what follows from it, such as a crossover; for people
};

struct Plot {
    std::string table, title;
    std::string x, y, curves;  // names of columns; curves: empty for one curve alone
    bool log_x = true, log_y = true;
};

// As JSON and back; the latter throws Error, naming `where`, for anything but what the former gives.
nlohmann::json table_to_json(const Table& table);
Table table_from_json(const nlohmann::json& json, const std::string& where);
nlohmann::json plot_to_json(const Plot& plot);
Plot plot_from_json(const nlohmann::json& json, const std::string& where);

// Throws Error, naming `where`, for two tables of one name and for plots of tables or columns that are not
// there.
void check_plots(const std::vector<Plot>& plots, const std::vector<Table>& tables, const std::string& where);

// A cell as text: numbers with the column's significant digits ("1.235e+09" only where plain digits would be
// longer than 9), null as "-".
std::string cell_text(const Cell& cell, const Column& column);

// Whether any of the column's cells is text: such columns are aligned to the left.
bool is_text_column(const Table& table, size_t column);

// The table for a terminal: columns aligned, a line for the heading, the note below.
std::string table_text(const Table& table);
