// The report's file, page and comparison: JSON that is read back unchanged, malformed JSON refused in one
// line, aligned text, a page that is well-formed, self-contained and escaped. report_browser_test.cpp tests
// the page in a browser, report_sections_test.cpp the measurements.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "dev/report/compare.h"
#include "dev/report/page.h"
#include "llmc/base/file.h"
#include "llmc/base/html.h"
#include "tests/message_of.h"
#include "tests/report_example.h"

using nlohmann::json;

static const std::string program = BINARY_DIR "/report";

// The first XML error in a text, or nothing: tags that do not nest, attributes without quotes, stray < and &.
static std::string xml_fault(const std::string& text) {
    Words open;
    const std::regex tag(R"(^<(/?)([A-Za-z][\w:-]*)((?:\s+[\w:-]+\s*=\s*(?:"[^"<]*"|'[^'<]*'))*)\s*(/?)>)");
    const std::regex entity("^&(lt|gt|amp|quot|#[0-9]+);");
    const auto here = [&](size_t at) { return text.substr(at, 60); };
    for (size_t at = 0; (at = text.find_first_of("<&", at)) != std::string::npos;) {
        std::smatch match;
        // tags are short: this excludes the style sheet between them
        const std::string rest = text.substr(at, std::min<size_t>(4000, text.find('>', at) + 1 - at));
        if (text[at] == '&') {
            const std::string some = text.substr(at, 10);
            if (!std::regex_search(some, entity)) return "stray &: " + here(at);
            at++;
            continue;
        }
        at += rest.size();
        if (rest.starts_with("<!DOCTYPE html>")) continue;
        if (!std::regex_match(rest, match, tag)) return "no tag: " + rest;
        if (match[1].length()) {
            if (open.empty() || open.back() != match[2]) return "closes what is not open: " + rest;
            open.pop_back();
        } else if (!match[4].length()) {
            open.push_back(match[2]);
        }
    }
    return open.empty() ? "" : "never closed: " + open.back();
}

TEST(Report, TheXmlCheckFindsFaults) {
    EXPECT_EQ(xml_fault("<a b=\"c\" d='e'><f/>&lt;</a>"), "");
    for (const char* bad :
         {"<a>", "</a>", "<a><b></a></b>", "<a b=c></a>", "<a>&</a>", "<a>&nbsp;</a>", "<a>1 < 2</a>"})
        EXPECT_NE(xml_fault(bad), "") << bad;
}

// --- the file ---

TEST(Report, IsReadBack) {
    json example = nasty_report();
    example["programs"][0]["left_out"] = {"sizes <100>", "sizes 200"};
    const json written = report_to_json(report_from_json(example, "x"));
    EXPECT_EQ(report_to_json(report_from_json(json::parse(written.dump()), "y")), written);
    for (const char* member : {"program", "what", "command", "device", "seconds", "left_out"})
        EXPECT_EQ(written["programs"][0][member], example["programs"][0][member]) << member;
    EXPECT_EQ(written["programs"][0]["tables"][0]["rows"], example["programs"][0]["tables"][0]["rows"]);
    const json plot = written["programs"][1]["plots"][0], column = written["programs"][1]["tables"][0];
    EXPECT_TRUE(plot["log_x"] && plot["log_y"] && plot["curves"] == "");  // defaults
    EXPECT_EQ(column["columns"][0]["digits"], 4);
}

TEST(Report, MalformedJsonIsRefusedInOneLine) {
    const auto path = [](const std::string& pointer) { return json::json_pointer("/programs/0" + pointer); };
    const std::tuple<const char*, const char*, const char*> cases[] = {
        {"", "[]", "cannot use at() with array"},
        {"/program", "3", "type must be string"},
        {"/program", "\"../x\"", "\"program\" is no name"},
        {"/program", "\"<script>\"", "\"program\" is no name"},
        {"/program", "\"A\"", "\"program\" is no name"},
        {"/program", "\"\"", "\"program\" is no name"},
        {"/program", "\".\"", "\"program\" is no name"},
        {"/program", "\"a\\nb\"", "\"program\" is no name"},
        {"/tables", "{}", "\"tables\" is no array"},
        {"/tables/0/name", "\"A table\"", "\"name\" is no name"},
        {"/tables/0/title", "null", "type must be string"},
        {"/tables/0/columns", "[]", "no columns"},
        {"/tables/0/columns/0", "\"x\"", "cannot use at() with string"},
        {"/tables/0/columns/0/name", "\"\"", "has no name"},
        {"/tables/0/columns/0/name", "\"rate\"", "two columns named rate"},
        {"/tables/0/columns/0/key", "1", "type must be boolean"},
        {"/tables/0/columns/2/better", "\"most\"", "\"better\""},
        {"/tables/0/columns/2/digits", "0", "\"digits\""},
        {"/tables/0/columns/2/digits", "18446744073709551615", "\"digits\""},
        {"/tables/0/rows/3", "[1, 2]", "3 cells"},
        {"/tables/0/rows/3/2", "true", "column rate: a cell is not"},
        {"/tables/0/rows/3/2", "1e999", "number"},
        {"/plots/0/table", "\"none\"", "table none, which does not exist"},
        {"/plots/0/x", "\"sizes\"", "no column \"sizes\""},
        {"/plots/0/log_x", "1", "type must be boolean"},
        {"/left_out", "[1, 2]", "type must be string"},
        {"/device/memory", "[1]", "a cell is not"}};
    TemporaryFolder folder;
    for (const auto& [where, value, says] : cases) {
        json bad = nasty_report();
        bad[path(where)] = "REPLACED";
        std::string text = bad.dump();
        text.replace(text.find("\"REPLACED\""), 10, value);
        write_whole_file(folder / "a.json", {text});
        const std::string message = message_of([&] { read_report(folder / "a.json"); });
        EXPECT_TRUE(contains(message, says)) << where;
        EXPECT_TRUE(contains(message, "a.json"));
        EXPECT_EQ(count_lines(message), 1) << message;
    }
}

TEST(Report, CellsAsText) {
    const Column value = {"rate"}, key = {"size", "", true}, precise = {"rate", "", false, Better::more, 7};
    const std::tuple<Cell, Column, std::string> cases[] = {
        {nullptr, value, "-"},
        {"fp32", value, "fp32"},
        {0.0, value, "0"},
        {3840.123, value, "3840"},
        {1.5, value, "1.500"},
        {1.5, key, "1.5"},
        {2.0, key, "2"},
        {592123, value, "592123"},
        {0.9999999, value, "1.000"},
        {1234567890, value, "1.235e+09"},
        {0.0001234, value, "0.0001234"},
        {0.00001234, value, "1.234e-05"},
        {-123456789, value, "-123456789"},
        {3.14159265, precise, "3.141593"},
        {2500000000, key, "2.5e+09"},
    };
    for (const auto& [cell, column, text] : cases) EXPECT_EQ(cell_text(cell, column), text) << text;
}

TEST(Report, TablesAreAligned) {
    const Table table = {"peaks",
                         "Peaks",
                         {{"what", "", true},
                          {"size", "", true},
                          {"rate", "GB/s", false, Better::more, 5},
                          {"time", "ms", false, Better::less}},
                         {{"copy", 64, 3840.0, nullptr}, {"größer", 1000000, 0.5, 12.25}},
                         "a note"};
    EXPECT_EQ(table_text(table),
              "Peaks\n"
              "what       size  rate (GB/s)  time (ms)\n"
              "copy         64       3840.0          -\n"
              "größer  1000000      0.50000      12.25\n"
              "a note\n");
}

// --- the page ---

TEST(Report, ThePageIsSelfContainedAndEscaped) {
    TemporaryFolder folder;
    write_whole_file(folder / "it.json", {nasty_report().dump()});
    expect_ok(run_program("report --page", folder / "it.json"));
    const std::string page = read_whole_file(folder / "it.html");
    EXPECT_EQ(xml_fault(page), "");
    // self-contained: links stay within the page, and nothing is loaded from elsewhere
    const std::regex link(R"re((?:href|src|data|action)\s*=\s*["']([^"']?))re");
    for (std::sregex_iterator it(page.begin(), page.end(), link), end; it != end; ++it)
        EXPECT_EQ((*it)[1], "#");
    for (const char* loading : {"url(", "@import", "<script", "<link", "<img", "<iframe", "<object"})
        EXPECT_FALSE(contains(page, loading));
    // every special text appears, escaped
    EXPECT_FALSE(contains(page, "<b>&"));
    EXPECT_FALSE(contains(page, "<i>"));
    EXPECT_TRUE(contains(page, "<h1>&lt;b&gt;&amp;&quot;x</h1>"));
    for (const char* where : {"table's", "note", "cell", "column", "error", "what", "cpu"})
        EXPECT_TRUE(contains(page, std::string("&lt;i&gt;") + escape_html(where))) << where;
    EXPECT_TRUE(contains(page, "a driver\\x01"));
}

TEST(Report, PlotsAndTablesAreOnThePage) {
    Report report = report_from_json(nasty_report(), "x");
    report.parts[1].left_out = {"sizes <100>", "sizes 200"};
    const std::string page = report_page(report);
    EXPECT_EQ(count_of(page, "<figure"), 3);
    EXPECT_EQ(count_of(page, "class=\"curve\""), 2 + 1 + 1);
    for (const char* legend : {"/></svg>&lt;i&gt;cell</li>", "/></svg>GPU</li>", ">size</text>"})
        EXPECT_TRUE(contains(page, legend));
    // headings with units, text aligned left, numbers aligned right, values not measured
    EXPECT_TRUE(contains(page, "<th class=\"t\">device</th>"));
    EXPECT_TRUE(contains(page, "<th>rate<small>TFLOP/s</small></th>"));
    EXPECT_TRUE(contains(page, "<td class=\"t\">GPU</td>"));
    EXPECT_TRUE(contains(page, "<td>290.5</td>"));
    EXPECT_TRUE(contains(page, "<td>-</td>"));
    EXPECT_EQ(count_of(page, "<tr>"), 3 + 40 + 3 + 1 + 2 + 4);  // headings and rows, of the machine, too
    EXPECT_EQ(count_of(page, "<details") - count_of(page, "open=\"open\""), 1);  // long, and plotted
    EXPECT_TRUE(contains(page, "<li>sizes &lt;100&gt;</li><li>sizes 200</li>"));
    EXPECT_EQ(count_of(page, "role=\"alert\""), 1);  // of the section that failed
}

TEST(Report, CurvesOfATable) {
    Table table = {"t", "", {{"n", "", true}, {"who", "", true}, {"y"}}};
    table.rows = {{8, "b", 1.0}, {4, "a", 2.0},  {2, "b", 3.0},  {4, "b", nullptr},
                  {0, "b", 5.0}, {16, "b", 0.0}, {32, "c", -1.0}};
    const std::vector<PlotCurve> curves = plot_curves(table, {"t", "", "n", "y", "who"});
    ASSERT_EQ(curves.size(), 2u);
    EXPECT_EQ(curves[0].name, "b");
    EXPECT_EQ(curves[0].points, (Series{{2, 3}, {8, 1}}));
    EXPECT_NE(curves[0].style.colour, curves[1].style.colour);
    EXPECT_EQ(plot_curves(table, {"t", "", "n", "y", "who", false, false})[0].points.size(), 4u);
    EXPECT_EQ(plot_curves(table, {"t", "", "n", "y", ""}).size(), 1u);
}

// --- comparison ---

static Report compared(std::vector<std::vector<Cell>> rows, const std::string& device) {
    const Table table = {"t",
                         "Things",
                         {{"what", "", true},
                          {"size", "", true},
                          {"time", "ms", false, Better::less},
                          {"rate", "GB/s", false, Better::more},
                          {"difference"}},
                         std::move(rows)};
    ReportPart part = {.program = "peak"};
    part.tables = {table};
    part.device = Machine{{}, {{"cpu", device}}};
    return {"2026-01-01", "", false, {part}};
}

TEST(Report, ComparisonOfTwo) {
    const Report a = compared({{"copy", 1, 10.0, 100, 0.1},
                               {"copy", 2, 10.0, 100, 0.1},
                               {"add", 1, 10.0, nullptr, 0.1},
                               {"gone", 1, 1, 1, 1}},
                              "one");
    Report b = compared({{"add", 1, 9.9, 50, 0.2},
                         {"copy", 2.0, 20.0, 101.9, 0.3},
                         {"copy", 1, 5.0, 102.1, 0.4},
                         {"new", 1, 1, 1, 1},
                         {"new", 2, 1, 1, 1}},
                        "two");
    b.parts[0].tables.push_back({"extra", "", {{"a"}}});
    EXPECT_EQ(compare_reports(a, b),
              "A: one, 2026-01-01\n"
              "B: two, 2026-01-01\n"
              "\n"
              "Things: time\n"
              "what  size  A (ms)  B (ms)     B/A  B is\n"
              "copy     1   10.00   5.000  0.5000  better\n"
              "copy     2   10.00   20.00   2.000  worse\n"
              "add      1   10.00   9.900  0.9900  same\n"
              "\n"
              "Things: rate\n"
              "what  size  A (GB/s)  B (GB/s)    B/A  B is\n"
              "copy     1       100     102.1  1.021  better\n"
              "copy     2       100     101.9  1.019  same\n"
              "add      1         -        50      -  -\n"
              "\n"
              "Things: difference\n"
              "what  size       A       B\n"
              "copy     1  0.1000  0.4000\n"
              "copy     2  0.1000  0.3000\n"
              "add      1  0.1000  0.2000\n"
              "\n"
              "Things: 1 rows only in A, 2 only in B\n"
              "\n"
              "B is better in 2, worse in 1, the same within 2 % in 2; 1 rows only in A, 2 only in B\n"
              "only in B: table peak.extra\n");
    EXPECT_TRUE(contains(compare_reports(b, a), "better in 1, worse in 2,"));
    // columns that agree and are not rated are not shown
    EXPECT_FALSE(contains(compare_reports(a, a), "Things: difference"));
    EXPECT_TRUE(contains(compare_reports(a, a), "better in 0, worse in 0, the same within 2 % in 7;"));
}

TEST(Report, ComparisonOfTablesThatDiffer) {
    Report a = compared({{"copy", 1, 10.0, 100, 0.1}, {"copy", 1, 20.0, 100, 0.1}}, "one"), b = a;
    b.parts[0].tables[0].columns[2].unit = "s";  // another unit: another column
    EXPECT_FALSE(contains(compare_reports(a, b), "Things: time"));
    EXPECT_TRUE(contains(compare_reports(a, b), "Things: rate"));
    b = a;  // rows with equal keys are matched in order
    EXPECT_TRUE(contains(compare_reports(a, b), "same within 2 % in 4;"));
    b.parts[0].tables[0].columns[1].name = "length";
    EXPECT_TRUE(contains(compare_reports(a, b), "not compared"));
    b = a;
    b.parts[0].tables[0].columns[3].key = true;
    EXPECT_TRUE(contains(compare_reports(a, b), "not compared"));
}

TEST(Report, ErrorMessages) {
    TemporaryFolder folder;
    const std::string good = folder / "good.json", out = folder / "out";
    write_whole_file(good, {nasty_report().dump()});
    write_whole_file(folder / "text.json", {"not JSON"});
    write_whole_file(folder / "deep.json", {R"({"programs": )", std::string(1000000, '['), "}"});
    write_whole_file(folder / "other.json", {"{\"context\": {}, \"benchmarks\": []}"});
    const std::vector<std::pair<std::string, Words>> cases = {
        {"--compare", {"--compare", good}},
        {"missing.json", {"--compare", good, folder / "missing.json"}},
        {"text.json is not a JSON object", {"--compare", good, folder / "text.json"}},
        {"deep.json has JSON nested deeper than 64 levels", {"--compare", good, folder / "deep.json"}},
        {"not a report", {"--compare", folder / "other.json", good}},
        {"not a report", {"--page", folder / "other.json"}},
        {"excludes", {"--page", good, "--compare", good, good}},
        {"--only", {"--only", "peek", "--out", out}},
        {"--seconds", {"--seconds", "-1", "--out", out}},
        {"--colour", {"--colour"}},
        {"no device 'cuda'", {"--device", "cuda", "--out", out}},
    };
    for (const auto& [says, arguments] : cases) expect_refusal(run_program(with({program}, arguments)), says);
    EXPECT_FALSE(std::filesystem::exists(out));
    EXPECT_FALSE(std::filesystem::exists(folder / "other.html"));
}
