// Tables of measurements and plots of them: what the report prints, writes as JSON, draws and compares.
//
// A table is in long form: one row per measurement. Key columns say what was measured, the others hold the
// results. A plot is a view of a table: column y over column x, one curve for each value of column `curves`.
#pragma once
#include <concepts>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

enum class Better { neither, more, less };

struct Column {
    std::string name;
    std::string unit = "";  // printed in the heading
    bool key = false;       // identifies the row: reports are compared row by row where all keys agree
    Better better = Better::neither;  // which change is an improvement; neither: reports are not rated by it
    int digits = 4;                   // significant digits of numbers
};

// A number, text, or null for "not measured", such as the tensor-core rate of a device without tensor cores.
class Cell {
   public:
    Cell(std::nullptr_t = nullptr) {}
    Cell(double value) : content(value) {}
    Cell(std::integral auto value) : content(int64_t(value)) {}
    Cell(const char* value) : content(std::string(value)) {}
    Cell(std::string value) : content(std::move(value)) {}

    bool is_null() const { return std::holds_alternative<std::nullptr_t>(content); }
    bool is_text() const { return std::holds_alternative<std::string>(content); }
    bool is_integer() const { return std::holds_alternative<int64_t>(content); }
    bool is_number() const { return is_integer() || std::holds_alternative<double>(content); }
    // These throw std::bad_variant_access if the cell holds something else.
    int64_t integer() const { return std::get<int64_t>(content); }
    double number() const { return is_integer() ? double(integer()) : std::get<double>(content); }
    const std::string& text() const { return std::get<std::string>(content); }

    // 2 equals 2.0: JSON does not tell them apart reliably.
    bool operator==(const Cell& other) const {
        if (is_number() && other.is_number() && is_integer() != other.is_integer())
            return number() == other.number();
        return content == other.content;
    }

   private:
    std::variant<std::nullptr_t, int64_t, double, std::string> content = nullptr;
};

struct Table {
    std::string name;   // unique in its section: lower case, digits, underscores
    std::string title;  // for readers
    std::vector<Column> columns;
    std::vector<std::vector<Cell>> rows = {};
    std::string note = "";  // for readers: conditions and conclusions, such as a crossover size
};

struct Plot {
    std::string table, title;
    std::string x, y, curves;  // column names; curves empty: a single curve
    bool log_x = true, log_y = true;
};

// A number as a cell: null if it is not finite.
Cell number(double value);

// The index of the column; Error if there is none.
size_t find_column(const Table& table, const std::string& name);

// A cell as text: numbers with the column's significant digits ("1.235e+09" only if plain digits would take
// more than 9 characters), null as "-".
std::string cell_text(const Cell& cell, const Column& column);

// Whether any cell of the column is text: such columns are aligned to the left.
bool is_text_column(const Table& table, size_t column);

// The table for a terminal: aligned columns, one heading line, the note below.
std::string table_text(const Table& table);
