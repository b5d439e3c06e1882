// Two reports side by side: see compare.h.
#include "dev/report/compare.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/error.h"

struct Counts {
    int better = 0, worse = 0, same = 0, only_in_a = 0, only_in_b = 0;
};

// Where b has each element of a: its index, or b's size. Equal elements are matched in order.
template <class Elements, class Same>
static std::vector<size_t> matching(const Elements& a, const Elements& b, const Same& same) {
    std::vector<bool> taken(b.size());
    std::vector<size_t> indices;
    for (const auto& element : a) {
        size_t other = 0;
        while (other < b.size() && (taken[other] || !same(element, b[other]))) other++;
        if (other < b.size()) taken[other] = true;
        indices.push_back(other);
    }
    return indices;
}

static std::string verdict(double ratio, Better better, Counts& counts) {
    if (std::fabs(ratio - 1) < 0.02) return counts.same++, "same";
    const bool good = (ratio > 1) == (better == Better::more);
    (good ? counts.better : counts.worse)++;
    return good ? "better" : "worse";
}

namespace {
struct TablePair {
    const Table &a, &b;
    std::vector<size_t> columns, rows;  // of b, for those of a
};
}  // namespace

// One column of results, as a table of the keys, A and B; if the column can be rated, also B/A and the
// verdict. Omits columns that are not rated and agree in every row, such as the number of repetitions.
static std::string compare_column(const TablePair& pair, size_t column, Counts& counts) {
    const Column& values = pair.a.columns[column];
    const bool rated = values.better != Better::neither;
    bool differs = false;
    Table result = {pair.a.name, pair.a.title + ": " + values.name, {}};
    std::copy_if(pair.a.columns.begin(), pair.a.columns.end(), std::back_inserter(result.columns),
                 [](const Column& c) { return c.key; });
    for (const char* name : {"A", "B"})
        result.columns.push_back({name, values.unit, false, values.better, values.digits});
    if (rated) result.columns.insert(result.columns.end(), {{"B/A"}, {"B is"}});
    for (size_t r = 0; r < pair.rows.size(); r++) {
        if (pair.rows[r] == pair.b.rows.size()) continue;
        std::vector<Cell> cells;
        for (size_t i = 0; i < pair.a.columns.size(); i++)
            if (pair.a.columns[i].key) cells.push_back(pair.a.rows[r][i]);
        const Cell &x = pair.a.rows[r][column], &y = pair.b.rows[pair.rows[r]][pair.columns[column]];
        cells.insert(cells.end(), {x, y});
        differs |= !(x == y);
        const bool known = x.is_number() && y.is_number() && x.number() > 0 && y.number() >= 0;
        const double ratio = known ? y.number() / x.number() : 0;
        if (rated) cells.push_back(known ? Cell(ratio) : Cell());
        if (rated) cells.push_back(known ? verdict(ratio, values.better, counts) : "-");
        result.rows.push_back(cells);
    }
    return rated || differs ? table_text(result) + "\n" : "";
}

static std::string compare_tables(const Table& a, const Table& b, Counts& counts) {
    TablePair pair = {a, b, {}, {}};
    pair.columns = matching(a.columns, b.columns, [](const Column& x, const Column& y) {
        return x.name == y.name && x.unit == y.unit && x.key == y.key;
    });
    int keys = 0;
    for (size_t i = 0; i < a.columns.size(); i++)
        keys += a.columns[i].key && pair.columns[i] < b.columns.size();
    const auto is_key = [](const Column& c) { return c.key; };
    for (const Table* table : {&a, &b})
        if (keys != std::count_if(table->columns.begin(), table->columns.end(), is_key))
            return printable(a.title) + "\nnot compared: the key columns differ\n\n";
    pair.rows = matching(a.rows, b.rows, [&](const std::vector<Cell>& x, const std::vector<Cell>& y) {
        for (size_t i = 0; i < x.size(); i++)
            if (a.columns[i].key && !(x[i] == y[pair.columns[i]])) return false;
        return true;
    });
    const int only_a = int(std::count(pair.rows.begin(), pair.rows.end(), b.rows.size()));
    const int matched = int(a.rows.size()) - only_a, only_b = int(b.rows.size()) - matched;
    counts.only_in_a += only_a;
    counts.only_in_b += only_b;
    std::string text;
    for (size_t c = 0; c < a.columns.size() && matched; c++)
        if (!a.columns[c].key && pair.columns[c] < b.columns.size()) text += compare_column(pair, c, counts);
    if (only_a || only_b)
        text += format_string("%s: %d rows only in A, %d only in B\n\n", printable(a.title).c_str(), only_a,
                              only_b);
    return text;
}

using NamedTables = std::vector<std::pair<std::string, const Table*>>;  // by "section.table"

static NamedTables tables_of(const Report& report) {
    NamedTables tables;
    for (const ReportPart& part : report.parts)
        for (const Table& table : part.tables) tables.push_back({part.program + "." + table.name, &table});
    return tables;
}

static std::string origin(const char* name, const Report& report) {
    return format_string("%s: %s%s%s%s\n", name, printable(device_name(report)).c_str(),
                         report.date.empty() ? "" : ", ", printable(report.date).c_str(),
                         report.quick ? ", quick" : "");
}

std::string compare_reports(const Report& a, const Report& b) {
    Counts counts;
    std::string text = origin("A", a) + origin("B", b) + "\n", alone;
    const NamedTables in_a = tables_of(a), in_b = tables_of(b);
    const auto same_name = [](const auto& x, const auto& y) { return x.first == y.first; };
    const std::vector<size_t> of_b = matching(in_a, in_b, same_name), of_a = matching(in_b, in_a, same_name);
    for (size_t i = 0; i < in_a.size(); i++) {
        if (of_b[i] < in_b.size())
            text += compare_tables(*in_a[i].second, *in_b[of_b[i]].second, counts);
        else
            alone += "only in A: table " + printable(in_a[i].first) + "\n";
    }
    for (size_t i = 0; i < in_b.size(); i++)
        if (of_a[i] == in_a.size()) alone += "only in B: table " + printable(in_b[i].first) + "\n";
    return text +
           format_string(
               "B is better in %d, worse in %d, the same within 2 %% in %d; %d rows only in A, %d only in "
               "B\n",
               counts.better, counts.worse, counts.same, counts.only_in_a, counts.only_in_b) +
           alone;
}
