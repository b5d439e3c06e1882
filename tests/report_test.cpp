// The program report: its page (well-formed, self-contained, escaped, with and without gnuplot), comparisons,
// and programs that fail, hang or are missing. report_browser_test.cpp tests the page in a browser.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "dev/report/compare.h"
#include "dev/report/page.h"
#include "dev/report/plots.h"
#include "llmc/base/file.h"
#include "llmc/base/html.h"
#include "tests/message_of.h"
#include "tests/report_example.h"

using nlohmann::json;

static const std::string program = BINARY_DIR "/report";

static bool have_gnuplot() { return program_succeeds({"gnuplot", "--version"}); }

// The first XML error in a text, or nothing: tags that do not nest, attributes without quotes, stray < and &.
static std::string xml_fault(const std::string& text) {
    std::vector<std::string> open;
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
        if (rest.starts_with("<!DOCTYPE html>")) {
            at += rest.size();
            continue;
        }
        if (!std::regex_match(rest, match, tag)) return "no tag: " + here(at);
        if (match[1].length()) {
            if (open.empty() || open.back() != match[2]) return "closes what is not open: " + here(at);
            open.pop_back();
        } else if (!match[4].length()) {
            open.push_back(match[2]);
        }
        at += rest.size();
    }
    return open.empty() ? "" : "never closed: " + open.back();
}

static size_t count_of(const std::string& text, const std::string& part) {
    size_t count = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) count++;
    return count;
}

// The first group of every match of a pattern.
static std::vector<std::string> all_of(const std::string& text, const char* pattern) {
    const std::regex regex(pattern);
    std::vector<std::string> found;
    for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it)
        found.push_back((*it)[1]);
    return found;
}

TEST(Report, TheXmlCheckFindsFaults) {
    EXPECT_EQ(xml_fault("<a b=\"c\" d='e'><f/>&lt;</a>"), "");
    for (const char* bad :
         {"<a>", "</a>", "<a><b></a></b>", "<a b=c></a>", "<a>&</a>", "<a>&nbsp;</a>", "<a>1 < 2</a>"})
        EXPECT_NE(xml_fault(bad), "") << bad;
}

TEST(Report, ThePageIsSelfContainedAndEscaped) {
    TemporaryFolder folder;
    write_whole_file(folder / "it.json", {nasty_report().dump()});
    const ProgramResult result = run_program({program, "--page", folder / "it.json"});
    ASSERT_EQ(result.status, 0) << result.err;
    const std::string page = read_whole_file(folder / "it.html");
    EXPECT_EQ(xml_fault(page), "");
    if (program_succeeds({"xmllint", "--version"})) {
        EXPECT_EQ(run_program({"xmllint", "--noout", folder / "it.html"}).err, "");
    }
    // self-contained: links stay within the page, and nothing is loaded from elsewhere
    for (const std::string& target : all_of(page, R"re((?:href|src|data|action)\s*=\s*["']([^"']*))re"))
        EXPECT_EQ(target[0], '#') << target;
    for (const char* loading : {"url(", "@import", "<script", "<link", "<img", "<iframe", "<object"})
        EXPECT_EQ(page.find(loading), std::string::npos) << loading;
    // every special text appears, escaped
    EXPECT_EQ(page.find("<b>&"), std::string::npos);
    EXPECT_EQ(page.find("<i>"), std::string::npos);
    EXPECT_NE(page.find("<h1>&lt;b&gt;&amp;&quot;x</h1>"), std::string::npos);
    for (const char* where : {"table's", "note", "cell", "column", "command", "error", "what", "cpu"})
        EXPECT_NE(page.find(std::string("&lt;i&gt;") + escape_html(where)), std::string::npos) << where;
    EXPECT_NE(page.find("control\\x01"), std::string::npos);
}

TEST(Report, PlotsAreDrawn) {
    if (!have_gnuplot()) GTEST_SKIP() << "no gnuplot";
    TemporaryFolder folder;
    write_whole_file(folder / "it.json", {nasty_report().dump()});
    ASSERT_EQ(run_program({program, "--page", folder / "it.json"}).err, "");
    const std::string page = read_whole_file(folder / "it.html");
    EXPECT_EQ(count_of(page, "<figure"), 3u);
    EXPECT_EQ(count_of(page, "role=\"img\""), 3u);
    // ids are unique, and every reference has a target
    const std::vector<std::string> ids = all_of(page, R"(\sid=["']([^"']*))");
    const std::set<std::string> different(ids.begin(), ids.end());
    EXPECT_EQ(different.size(), ids.size());
    for (const std::string& target : all_of(page, R"(href=["']#([^"']*))"))
        EXPECT_TRUE(different.count(target)) << target;
    // the legend names each curve, the axes their columns
    for (const char* text : {"&lt;i&gt;cell", "GPU", "size", "TFLOP/s"})
        EXPECT_NE(page.find(text), std::string::npos) << text;
    const std::string picture = read_whole_file(folder / "sweep_1.svg");
    EXPECT_EQ(picture.substr(0, 5), "<?xml");
    EXPECT_NE(picture.find("fill=\"#ffffff\""), std::string::npos);
    EXPECT_NE(picture.find("It's the rate"), std::string::npos);
    EXPECT_EQ(xml_fault(picture.substr(picture.find("<svg"))), "");
}

TEST(Report, TablesWithoutGnuplot) {
    TemporaryFolder folder;
    write_whole_file(folder / "it.json", {nasty_report().dump()});
    const ProgramResult result = run_program({"env", "PATH=/none", program, "--page", folder / "it.json"});
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(count_lines(result.err), 1) << result.err;
    EXPECT_NE(result.err.find("gnuplot"), std::string::npos) << result.err;
    const std::string page = read_whole_file(folder / "it.html");
    EXPECT_EQ(xml_fault(page), "");
    EXPECT_NE(page.find("Plots are missing: cannot start gnuplot"), std::string::npos);
    EXPECT_EQ(count_of(page, "<figure"), 0u);
    EXPECT_EQ(count_of(page, "<table"), 3u);
    EXPECT_EQ(count_of(page, "<details"), count_of(page, "open=\"open\""));  // nothing is collapsed
}

TEST(Report, TablesOnThePage) {
    std::string problem;
    const std::string page = report_page(report_from_json(nasty_report(), "x"), problem);
    // headings with units, text aligned left, numbers aligned right, values not measured
    EXPECT_NE(page.find("<th class=\"t\">device</th>"), std::string::npos);
    EXPECT_NE(page.find("<th>rate<small>TFLOP/s</small></th>"), std::string::npos);
    EXPECT_NE(page.find("<td class=\"t\">GPU</td>"), std::string::npos);
    EXPECT_NE(page.find("<td>290.5</td>"), std::string::npos);
    EXPECT_NE(page.find("<td>-</td>"), std::string::npos);
    EXPECT_EQ(count_of(page, "<tr>"), 3u + 40 + 3 + 1);  // heading rows and data rows
    // a long table that is also plotted is collapsed
    EXPECT_EQ(count_of(page, "<details") - count_of(page, "open=\"open\""), problem.empty() ? 1u : 0u);
}

TEST(Report, TheSummaryHasTheBestOfEachTable) {
    const Report report = report_from_json(nasty_report(), "x");
    const std::vector<Highlight> best = highlights(report.parts[0].tables[0]);
    ASSERT_EQ(best.size(), 2u);
    EXPECT_EQ(best[0].what, "<i>cell");
    EXPECT_EQ(best[0].value, "1.950");
    EXPECT_EQ(best[1].what, "GPU");
    EXPECT_EQ(best[1].value, "290.5");
    EXPECT_EQ(best[1].unit, "TFLOP/s");
    EXPECT_EQ(best[1].where, "size 1900");
    Table table = {"t",
                   "",
                   {{"kind", "", true},
                    {"both", "", true},
                    {"n", "", true},
                    {"time", "s", false, Better::less},
                    {"rate"}}};
    table.rows = {{"a", "a b", 1, nullptr, 9},
                  {"a", "a b", 2, 3.0, 9},
                  {"a", "a b", 3, 4.0, 9},
                  {"c", "c", 4, nullptr, 9}};
    ASSERT_EQ(highlights(table).size(), 1u);  // c was not measured
    EXPECT_EQ(highlights(table)[0].what, "a b");
    EXPECT_EQ(highlights(table)[0].where, "n 2");
    table.columns[3].better = Better::neither;
    EXPECT_TRUE(highlights(table).empty());
}

TEST(Report, TheSummaryHasFirstTablesAndShortLists) {
    Report report = report_from_json(nasty_report(), "x");
    std::string problem;
    EXPECT_EQ(count_of(report_page(report, problem), "<dl class=\"best\">"), 1u);
    const Table list = {
        "l", "", {{"what", "", true}, {"time", "s", false, Better::less}}, {{"a", 1.5}, {"b", 2.5}}};
    Table sizes = list;
    sizes.name = "sizes";
    sizes.columns.insert(sizes.columns.begin(), {"n", "", true});
    for (std::vector<Cell>& row : sizes.rows) row.insert(row.begin(), 1);
    report.parts[0].tables.insert(report.parts[0].tables.end(), {list, sizes});
    EXPECT_EQ(count_of(report_page(report, problem), "<dl class=\"best\">"), 2u);
}

TEST(Report, CurvesOfATable) {
    Table table = {"t", "", {{"n", "", true}, {"who", "", true}, {"y"}}};
    table.rows = {{8, "b", 1.0}, {4, "a", 2.0},  {2, "b", 3.0},  {4, "b", nullptr},
                  {0, "b", 5.0}, {16, "b", 0.0}, {32, "c", -1.0}};
    const std::vector<Curve> curves = plot_curves(table, {"t", "", "n", "y", "who"});
    ASSERT_EQ(curves.size(), 2u);
    EXPECT_EQ(curves[0].name, "b");
    EXPECT_EQ(curves[0].points, (std::vector<std::pair<double, double>>{{2, 3}, {8, 1}}));
    EXPECT_NE(curves[0].colour, curves[1].colour);
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

// Headings, links and failures name no program.
TEST(Report, SectionsHaveTitles) {
    std::string problem;
    Report report = compared({{"copy", 1, 10.0, 100, 0.1}}, "one");
    const ReportPart first = report.parts[0];
    report.parts.clear();
    const std::vector<std::pair<std::string, std::string>> titles = {
        {"peak", "Peak rates"},
        {"matmul_sweep", "Matrix multiplication, by size"},
        {"elementwise_sweep", "Elementwise operations, by size"},
        {"dispatch_overhead", "Cost of a launch"},
        {"train_benchmark", "Training"}};
    for (const auto& [name, title] : titles) {
        report.parts.push_back(first);
        report.parts.back().program = name;
        report.parts.back().error = "an error";
    }
    const std::string page = report_page(report, problem);
    for (const auto& [name, title] : titles) {
        EXPECT_NE(page.find("<h2>" + title + "</h2>"), std::string::npos) << page;
        EXPECT_NE(page.find(title + " failed: an error"), std::string::npos) << page;
        EXPECT_EQ(page.find(">" + name), std::string::npos) << name;
    }
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
    const std::string text = compare_reports(a, b);
    EXPECT_EQ(text,
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
              "tables only in B: peak.extra\n");
    // swapping A and B swaps better and worse
    EXPECT_NE(compare_reports(b, a).find("better in 1, worse in 2,"), std::string::npos);
    // columns that agree and are not rated are not shown
    EXPECT_EQ(compare_reports(a, a).find("Things: difference"), std::string::npos);
    EXPECT_NE(compare_reports(a, a).find("Things: rate"), std::string::npos);
    EXPECT_NE(compare_reports(a, a).find("better in 0, worse in 0, the same within 2 % in 7;"),
              std::string::npos);
}

TEST(Report, ComparisonOfTablesThatDiffer) {
    Report a = compared({{"copy", 1, 10.0, 100, 0.1}, {"copy", 1, 20.0, 100, 0.1}}, "one"), b = a;
    b.parts[0].tables[0].columns[2].unit = "s";  // another unit: another column
    EXPECT_EQ(compare_reports(a, b).find("Things: time"), std::string::npos);
    EXPECT_NE(compare_reports(a, b).find("Things: rate"), std::string::npos);
    b = a;  // rows with equal keys are matched in order
    EXPECT_NE(compare_reports(a, b).find("same within 2 % in 4;"), std::string::npos);
    b.parts[0].tables[0].columns[1].name = "length";
    EXPECT_NE(compare_reports(a, b).find("not compared"), std::string::npos);
}

TEST(Report, ComparesFiles) {
    TemporaryFolder folder;
    write_whole_file(folder / "a.json", {nasty_report().dump()});
    write_whole_file(folder / "part.json", {nasty_report()["programs"][0].dump()});
    // one program's file reads as a report of that program alone
    const ProgramResult result = run_program({program, "--compare", folder / "a.json", folder / "part.json"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("better in 0, worse in 0, the same within 2 % in 39;"), std::string::npos)
        << result.out;
    EXPECT_NE(result.out.find("tables only in A: small.few"), std::string::npos) << result.out;
}

TEST(Report, ErrorMessages) {
    TemporaryFolder folder;
    const std::string good = folder / "good.json", out = folder / "out";
    write_whole_file(good, {nasty_report().dump()});
    write_whole_file(folder / "text.json", {"not JSON"});
    write_whole_file(folder / "deep.json", {R"({"programs": )", std::string(1000000, '['), "}"});
    write_whole_file(folder / "other.json", {"{\"context\": {}, \"benchmarks\": []}"});
    json broken = nasty_report(), numbers = broken;
    broken["programs"][0]["tables"][0]["rows"][3].erase(0);
    write_whole_file(folder / "broken.json", {broken.dump()});
    numbers["programs"][0]["left_out"] = {1, 2};
    write_whole_file(folder / "numbers.json", {numbers.dump()});
    const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
        {"--compare", {"--compare", good}},
        {"missing.json", {"--compare", good, folder / "missing.json"}},
        {"text.json is not a JSON object", {"--compare", good, folder / "text.json"}},
        {"deep.json has JSON nested deeper than 64 levels", {"--compare", good, folder / "deep.json"}},
        {"not a report", {"--compare", folder / "other.json", good}},
        {"broken.json: sweep: table gemms", {"--compare", good, folder / "broken.json"}},
        {"numbers.json: sweep: \"left_out\"", {"--page", folder / "numbers.json"}},
        {"not a report", {"--page", folder / "other.json"}},
        {"excludes", {"--page", good, "--compare", good, good}},
        {"--only", {"--only", "peek", "--out", out}},
        {"--seconds", {"--seconds", "-1", "--out", out}},
        {"--colour", {"--colour"}},
        {"no device 'cuda'", {"--device", "cuda", "--out", out}},  // before any program runs
    };
    for (const auto& [says, arguments] : cases) {
        std::vector<std::string> command = {program};
        command.insert(command.end(), arguments.begin(), arguments.end());
        const ProgramResult result = run_program(command);
        EXPECT_EQ(result.status, 1) << says;
        EXPECT_EQ(count_lines(result.err), 1) << result.err;
        EXPECT_NE(result.err.find(says), std::string::npos) << says << ": " << result.err;
    }
    EXPECT_FALSE(std::filesystem::exists(out));
    EXPECT_FALSE(std::filesystem::exists(folder / "other.html"));
}

// --- running the programs ---

// A folder with scripts instead of the programs.
struct FakePrograms {
    TemporaryFolder folder;
    std::string out = folder / "out", part = folder / "part.json";
    // a program that succeeds: writes its result to the file after --json
    std::string copy = "while [ \"$1\" ]; do [ \"$1\" = --json ] && cp " + part + " \"$2\"; shift; done\n";

    FakePrograms() { write_whole_file(part, {nasty_report()["programs"][1].dump()}); }
    void add(const std::string& name, const std::string& script) {
        write_whole_file(folder / name, {"#!/bin/sh\n" + script});
        std::filesystem::permissions(folder / name, std::filesystem::perms::owner_all);
    }
    // Writes the process id to the file "pid", atomically.
    std::string leave_pid() const {
        const std::string pid = folder / "pid";
        return "echo $$ >" + pid + ".new && mv " + pid + ".new " + pid + "\n";
    }
    ProgramResult run(std::vector<std::string> more, const SendSignal& signal = {}) {
        more.insert(more.begin(), {program, "--programs", folder.path, "--out", out});
        return run_program(more, signal);
    }
    json written() { return json::parse(read_whole_file(out + "/report.json")); }
};

TEST(Report, RunsThePrograms) {
    FakePrograms fake;
    fake.add("peak", "echo \"$@\" >" + fake.folder / "arguments\n" + fake.copy);
    fake.add("dispatch_overhead", "echo \"$@\" >" + fake.folder / "others\n" + fake.copy);
    const ProgramResult result =
        fake.run({"--device", "cpu", "--quick", "--only", "dispatch_overhead", "peak"});
    EXPECT_EQ(result.status, 0) << result.err;
    // all the time, minus most of the other program's share
    const std::string arguments = read_whole_file(fake.folder / "arguments");
    const std::string usual = "--device cpu --json " + fake.out + "/peak.json --quick --seconds ";
    ASSERT_TRUE(arguments.starts_with(usual)) << arguments;
    EXPECT_NEAR(stod(arguments.substr(usual.size())), 55 - 0.8 * 55 / 3, 1);
    const std::string others = read_whole_file(fake.folder / "others");  // refer to its peaks
    EXPECT_NE(others.find("--peaks " + fake.out + "/peak.json"), std::string::npos) << others;
    const json report = fake.written();
    ASSERT_EQ(report.at("programs").size(), 2u);
    EXPECT_TRUE(report.at("quick"));
    EXPECT_EQ(report["programs"][0]["error"], "");
    const std::string page = read_whole_file(fake.out + "/report.html");
    EXPECT_EQ(xml_fault(page), "");
    EXPECT_NE(page.find(report.at("date").get<std::string>()), std::string::npos);
    // the JSON file contains everything that the page shows
    ASSERT_EQ(run_program({program, "--page", fake.out + "/report.json"}).status, 0);
    EXPECT_EQ(read_whole_file(fake.out + "/report.html"), page);
}

// Measurements skipped for lack of time are no failure and are listed in the section of the program.
TEST(Report, SkippedMeasurementsAreOnThePage) {
    FakePrograms fake;
    json part = nasty_report()["programs"][1];
    part["left_out"] = {"sizes <100>", "sizes 200"};
    write_whole_file(fake.part, {part.dump()});
    fake.add("peak", fake.copy);
    const ProgramResult result = fake.run({"--only", "peak"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("skipped for lack of time: 2 measurements"), std::string::npos) << result.out;
    EXPECT_EQ(fake.written().at("programs")[0].at("left_out"), part["left_out"]);
    const std::string page = read_whole_file(fake.out + "/report.html");
    EXPECT_EQ(xml_fault(page), "");
    EXPECT_NE(page.find("Skipped for lack of time"), std::string::npos);
    EXPECT_NE(page.find("<li>sizes &lt;100&gt;</li><li>sizes 200</li>"), std::string::npos);
    EXPECT_EQ(count_of(page, "role=\"alert\""), 0u);
    part.erase("left_out");
    write_whole_file(fake.part, {part.dump()});
    EXPECT_EQ(fake.run({"--only", "peak"}).out.find("skipped"), std::string::npos);
    EXPECT_EQ(read_whole_file(fake.out + "/report.html").find("Skipped"), std::string::npos);
}

TEST(Report, FailedProgramsAreOnThePage) {
    FakePrograms fake;
    std::filesystem::create_directories(fake.out);
    write_whole_file(fake.out + "/matmul_sweep.json", {read_whole_file(fake.part)});  // of an earlier run
    fake.add("peak", fake.copy);
    // a background process keeps its output open
    fake.add("matmul_sweep",
             "sleep 5 &\necho 'some warning' >&2\necho 'matmul_sweep: wrong at <50>' >&2\nexit 1\n");
    fake.add("elementwise_sweep", fake.leave_pid() + "echo 'size 77' >&2\nexec sleep 100\n");
    fake.add("dispatch_overhead", "[ \"$3\" = --json ] && echo '{\"program\": 1}' >\"$4\"\n");
    const ProgramResult result = fake.run({"--seconds", "1"});
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(count_lines(result.err), 1) << result.err;
    EXPECT_NE(result.err.find("failed: matmul_sweep, elementwise_sweep, dispatch_overhead, train_benchmark;"),
              std::string::npos)
        << result.err;
    const json parts = fake.written().at("programs");
    const char* errors[] = {"", "wrong at <50>", "killed after its time limit", "\"program\" is a number",
                            "cannot start"};
    for (size_t i = 0; i < 5; i++) {
        const std::string error = parts.at(i).at("error");
        EXPECT_TRUE(i == 0 ? error.empty() : error.find(errors[i]) != std::string::npos) << error;
        EXPECT_EQ(parts[i].at("tables").empty(), i > 0);
    }
    EXPECT_EQ(parts[1].at("error"), "wrong at <50>");
    EXPECT_NE(parts[2].at("error").get<std::string>().find("size 77"),
              std::string::npos);  // its last progress
    EXPECT_LT(parts[2].at("seconds"), 50);
    EXPECT_NE(kill(stoi(read_whole_file(fake.folder / "pid")), 0), 0);
    const std::string page = read_whole_file(fake.out + "/report.html");
    EXPECT_EQ(xml_fault(page), "");
    EXPECT_NE(page.find("wrong at &lt;50&gt;"), std::string::npos);
    EXPECT_EQ(count_of(page, "role=\"alert\""), 4u);
    EXPECT_EQ(count_of(page, "<table"), 2u);  // peak's
}

TEST(Report, ASignalAlsoStopsTheProgram) {
    FakePrograms fake;
    fake.add("peak", fake.copy);
    fake.add("matmul_sweep", fake.leave_pid() + "exec sleep 100\n");
    const ProgramResult result = fake.run({}, {SIGTERM, "peak", 0});
    EXPECT_EQ(result.status, 1);
    EXPECT_NE(result.err.find("stopped by signal 15"), std::string::npos) << result.err;
    EXPECT_FALSE(std::filesystem::exists(fake.out + "/report.html"));
    if (std::filesystem::exists(fake.folder / "pid")) {
        EXPECT_NE(kill(stoi(read_whole_file(fake.folder / "pid")), 0), 0);
    }
}
