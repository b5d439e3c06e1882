// Two reports side by side: see compare.h.
#include "dev/report/compare.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/error.h"

struct Counts {
    int better = 0, worse = 0, same = 0;
    int rows_only_a = 0, rows_only_b = 0;
    std::vector<std::string> tables_only_a, tables_only_b;
};

// For each column of a its index in b; b.columns.size() if b lacks it.
static std::vector<size_t> matching_columns(const Table& a, const Table& b) {
    std::vector<size_t> indices;
    for (const Column& column : a.columns) {
        const auto found = std::find_if(b.columns.begin(), b.columns.end(), [&](const Column& other) {
            return other.name == column.name && other.unit == column.unit && other.key == column.key;
        });
        indices.push_back(size_t(found - b.columns.begin()));
    }
    return indices;
}

static bool same_keys(const Table& a, const Table& b, const std::vector<size_t>& indices) {
    auto keys = [](const Table& table) {
        return std::count_if(table.columns.begin(), table.columns.end(),
                             [](const Column& c) { return c.key; });
    };
    for (size_t i = 0; i < indices.size(); i++)
        if (a.columns[i].key && indices[i] == b.columns.size()) return false;
    return keys(a) == keys(b);
}

// For each row of a the row of b with the same keys; b.rows.size() if there is none. Rows with equal keys are
// matched in order.
static std::vector<size_t> matching_rows(const Table& a, const Table& b, const std::vector<size_t>& indices) {
    std::vector<bool> taken(b.rows.size());
    std::vector<size_t> rows;
    for (const std::vector<Cell>& row : a.rows) {
        size_t other = 0;
        for (; other < b.rows.size(); other++) {
            bool same = !taken[other];
            for (size_t i = 0; i < row.size() && same; i++)
                same = !a.columns[i].key || row[i] == b.rows[other][indices[i]];
            if (same) break;
        }
        if (other < b.rows.size()) taken[other] = true;
        rows.push_back(other);
    }
    return rows;
}

static std::string verdict(double ratio, Better better, Counts& counts) {
    if (std::fabs(ratio - 1) < 0.02) return counts.same++, "same";
    const bool good = (ratio > 1) == (better == Better::more);
    (good ? counts.better : counts.worse)++;
    return good ? "better" : "worse";
}

// One column of results, as a table of the keys, A and B; if the column can be rated, also B/A and the
// verdict. Omits columns that are not rated and agree in every row, such as the number of repetitions.
static std::string compare_column(const Table& a, const Table& b, size_t column, size_t other_column,
                                  const std::vector<size_t>& rows, Counts& counts) {
    const Column& values = a.columns[column];
    const bool rated = values.better != Better::neither;
    bool differs = false;
    Table result = {a.name, a.title + ": " + values.name, {}};
    for (const Column& key : a.columns)
        if (key.key) result.columns.push_back(key);
    result.columns.push_back({"A", values.unit, false, values.better, values.digits});
    result.columns.push_back({"B", values.unit, false, values.better, values.digits});
    if (rated) result.columns.insert(result.columns.end(), {{"B/A"}, {"B is"}});
    for (size_t r = 0; r < rows.size(); r++) {
        if (rows[r] == b.rows.size()) continue;
        std::vector<Cell> cells;
        for (size_t i = 0; i < a.columns.size(); i++)
            if (a.columns[i].key) cells.push_back(a.rows[r][i]);
        const Cell &x = a.rows[r][column], &y = b.rows[rows[r]][other_column];
        cells.insert(cells.end(), {x, y});
        differs |= !(x == y);
        if (rated) {
            const bool known = x.is_number() && y.is_number() && x.number() > 0 && y.number() >= 0;
            const double ratio = known ? y.number() / x.number() : 0;
            cells.push_back(known ? Cell(ratio) : Cell());
            cells.push_back(known ? verdict(ratio, values.better, counts) : "-");
        }
        result.rows.push_back(cells);
    }
    return rated || differs ? table_text(result) + "\n" : "";
}

static std::string compare_tables(const Table& a, const Table& b, Counts& counts) {
    const std::vector<size_t> indices = matching_columns(a, b);
    if (!same_keys(a, b, indices)) return printable(a.title) + "\nnot compared: the key columns differ\n\n";
    const std::vector<size_t> rows = matching_rows(a, b, indices);
    const int matched =
        int(std::count_if(rows.begin(), rows.end(), [&](size_t r) { return r < b.rows.size(); }));
    counts.rows_only_a += int(a.rows.size()) - matched;
    counts.rows_only_b += int(b.rows.size()) - matched;
    std::string text;
    for (size_t c = 0; c < a.columns.size() && matched; c++)
        if (!a.columns[c].key && indices[c] < b.columns.size())
            text += compare_column(a, b, c, indices[c], rows, counts);
    if (matched < int(a.rows.size()) || matched < int(b.rows.size()))
        text += format_string("%s: %d rows only in A, %d only in B\n\n", printable(a.title).c_str(),
                              int(a.rows.size()) - matched, int(b.rows.size()) - matched);
    return text;
}

using Tables = std::vector<std::pair<std::string, const Table*>>;  // by "program.table"

static Tables tables_of(const Report& report) {
    Tables tables;
    for (const ReportPart& part : report.parts)
        for (const Table& table : part.tables) tables.push_back({part.program + "." + table.name, &table});
    return tables;
}

static const Table* find_table(const Tables& tables, const std::string& name) {
    for (const auto& [other, table] : tables)
        if (other == name) return table;
    return nullptr;
}

static std::string list_of(const char* where, const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + printable(name);
    return names.empty() ? "" : format_string("tables only in %s: %s\n", where, text.c_str());
}

static std::string origin(const char* name, const Report& report) {
    return format_string("%s: %s%s%s%s\n", name, printable(device_name(report)).c_str(),
                         report.date.empty() ? "" : ", ", printable(report.date).c_str(),
                         report.quick ? ", quick" : "");
}

std::string compare_reports(const Report& a, const Report& b) {
    Counts counts;
    std::string text = origin("A", a) + origin("B", b) + "\n";
    const Tables in_a = tables_of(a), in_b = tables_of(b);
    for (const auto& [name, table] : in_a) {
        if (const Table* other = find_table(in_b, name))
            text += compare_tables(*table, *other, counts);
        else
            counts.tables_only_a.push_back(name);
    }
    for (const auto& [name, table] : in_b)
        if (!find_table(in_a, name)) counts.tables_only_b.push_back(name);
    return text +
           format_string(
               "B is better in %d, worse in %d, the same within 2 %% in %d; %d rows only in A, %d only in "
               "B\n",
               counts.better, counts.worse, counts.same, counts.rows_only_a, counts.rows_only_b) +
           list_of("A", counts.tables_only_a) + list_of("B", counts.tables_only_b);
}
