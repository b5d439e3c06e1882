// The frame of the report programs: JSON that is read back unchanged, aligned text, malformed JSON rejected
// with an error of one line, and exit statuses.
#include "dev/report/results.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "llmc/base/file.h"
#include "tests/layer_test.h"
#include "tests/message_of.h"
#include "tests/run_program.h"

using nlohmann::json;

static Table example() {
    return {"peaks",
            "Peaks",
            {{"what", "", true},
             {"size", "", true},
             {"rate", "GB/s", false, Better::more, 5},
             {"time", "ms", false, Better::less}},
            {{"copy", 64, 3840.0, nullptr}, {"größer", 1000000, 0.5, 12.25}},
            "a note"};
}

static const char* run_name = "example";

// Runs a program with these arguments.
static int run_with(std::vector<std::string> arguments, const std::function<void(ReportRun&)>& measure) {
    arguments.insert(arguments.begin(), {"build/example", "--device", "cpu"});
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    return run_report_program({.name = run_name, .what = "an example", .measure = measure}, int(argv.size()),
                              argv.data());
}

TEST(ReportResults, TablesAndPlotsAreReadBack) {
    const Table table = example();
    const json written = table_to_json(table);
    const Table read = table_from_json(json::parse(written.dump()), "here");
    EXPECT_EQ(read.name, table.name);
    EXPECT_EQ(read.title, table.title);
    EXPECT_EQ(read.note, table.note);
    EXPECT_EQ(read.rows, table.rows);
    ASSERT_EQ(read.columns.size(), table.columns.size());
    for (size_t i = 0; i < read.columns.size(); i++) {
        EXPECT_EQ(read.columns[i].name, table.columns[i].name);
        EXPECT_EQ(read.columns[i].unit, table.columns[i].unit);
        EXPECT_EQ(read.columns[i].key, table.columns[i].key);
        EXPECT_EQ(read.columns[i].better, table.columns[i].better);
        EXPECT_EQ(read.columns[i].digits, table.columns[i].digits);
    }
    const Plot plot = {"peaks", "a title", "size", "rate", "what", false, true};
    const json drawn = plot_to_json(plot);
    EXPECT_EQ(plot_to_json(plot_from_json(drawn, "here")), drawn);
    EXPECT_FALSE(plot_from_json(drawn, "here").log_x);
    EXPECT_EQ(plot_from_json(drawn, "here").curves, "what");
}

// Members with a default are optional.
TEST(ReportResults, OptionalMembers) {
    const Table table = table_from_json(
        json::parse(R"({"name": "t", "title": "", "columns": [{"name": "a"}], "rows": [[1]]})"), "here");
    EXPECT_EQ(table.columns[0].digits, 4);
    EXPECT_FALSE(table.columns[0].key);
    const Plot plot =
        plot_from_json(json::parse(R"({"table": "t", "title": "", "x": "a", "y": "a"})"), "here");
    EXPECT_TRUE(plot.log_x && plot.log_y && plot.curves.empty());
}

TEST(ReportResults, MalformedJsonIsRejected) {
    const json good = table_to_json(example());
    const std::vector<std::pair<std::string, json>> patches = {
        {"object", json::parse("[]")},
        {"name", R"({"name": null})"_json},
        {"name", R"({"name": 3})"_json},
        {"name", R"({"name": "../x"})"_json},
        {"title", R"({"title": ["x"]})"_json},
        {"note", R"({"note": 1})"_json},
        {"no columns", R"({"columns": [], "rows": []})"_json},
        {"columns", R"({"columns": "x"})"_json},
        {"object", R"({"columns": ["x"]})"_json},
        {"has no name", R"({"columns": [{"name": ""}]})"_json},
        {"two columns named a", R"({"columns": [{"name": "a"}, {"name": "a"}]})"_json},
        {"better", R"({"columns": [{"name": "a", "better": "most"}]})"_json},
        {"digits", R"({"columns": [{"name": "a", "digits": 0}]})"_json},
        {"digits", R"({"columns": [{"name": "a", "digits": 18446744073709551615}]})"_json},
        {"key", R"({"columns": [{"name": "a", "key": 1}]})"_json},
        {"rows", R"({"rows": {}})"_json},
        {"4 cells", R"({"rows": [["copy", 1, 2]]})"_json},
        {"4 cells", R"({"rows": ["copy"]})"_json},
        {"column size", R"({"rows": [["copy", true, 1, 2]]})"_json},
        {"column rate", R"({"rows": [["copy", 1, [2], 2]]})"_json},
    };
    ASSERT_EQ(message_of([&] { table_from_json(good, "a.json"); }), "");
    for (const auto& [says, patch] : patches) {
        json bad = good;
        if (patch.is_array())
            bad = patch;
        else
            bad.merge_patch(patch);
        const std::string message = message_of([&] { table_from_json(bad, "a.json"); });
        EXPECT_NE(message.find(says), std::string::npos) << patch << ": " << message;
        EXPECT_EQ(message.find("a.json: "), 0u) << message;
        EXPECT_EQ(count_lines(message), 1) << message;
    }
    const json plot = plot_to_json({"peaks", "", "size", "rate", "what"});
    for (const char* name : {"table", "title", "x", "y", "curves", "log_x"}) {
        json bad = plot;
        bad[name] = 1;
        EXPECT_NE(message_of([&] { plot_from_json(bad, "a.json"); }).find(name), std::string::npos);
    }
}

TEST(ReportResults, PlotsOfMissingColumnsAreRejected) {
    const std::vector<Table> tables = {example()};
    EXPECT_EQ(message_of([&] { check_plots({{"peaks", "", "size", "rate", ""}}, tables, "x"); }), "");
    EXPECT_EQ(message_of([&] { check_plots({{"peaks", "", "size", "rate", "what"}}, tables, "x"); }), "");
    for (const Plot& plot : {Plot{"peak", "", "size", "rate"}, Plot{"peaks", "", "sizes", "rate"},
                             Plot{"peaks", "", "size", ""}, Plot{"peaks", "", "size", "rate", "kind"}})
        EXPECT_NE(message_of([&] { check_plots({plot}, tables, "x"); }).find("does not exist"),
                  std::string::npos);
    EXPECT_NE(message_of([&] {
                  check_plots({}, {example(), example()}, "x");
              }).find("two tables"),
              std::string::npos);
}

TEST(ReportResults, CellsAsText) {
    const Column value = {"rate"}, key = {"size", "", true}, precise = {"rate", "", false, Better::more, 7};
    const std::vector<std::tuple<Cell, Column, std::string>> cases = {
        {nullptr, value, "-"},
        {"fp32", value, "fp32"},
        {0, value, "0"},
        {0.0, value, "0"},
        {3840.123, value, "3840"},
        {1.5, value, "1.500"},
        {1.5, key, "1.5"},
        {2.0, key, "2"},
        {592123.4, value, "592100"},
        {592123, value, "592123"},
        {0.9999999, value, "1.000"},
        {99999.0, value, "100000"},
        {1234567890, value, "1.235e+09"},
        {123456789, value, "123456789"},
        {1234567890.0, value, "1.235e+09"},
        {0.0001234, value, "0.0001234"},
        {0.00001234, value, "1.234e-05"},
        {-1.25, value, "-1.250"},
        {-123456789, value, "-123456789"},
        {3.14159265, precise, "3.141593"},
        {1e300, value, "1.000e+300"},
        {1000000000, key, "1e+09"},
        {2500000000, key, "2.5e+09"},
        {100, key, "100"},
        {100.0, key, "100"},
    };
    for (const auto& [cell, column, text] : cases) EXPECT_EQ(cell_text(cell, column), text) << text;
}

TEST(ReportResults, TablesAreAligned) {
    EXPECT_EQ(table_text(example()),
              "Peaks\n"
              "what       size  rate (GB/s)  time (ms)\n"
              "copy         64       3840.0          -\n"
              "größer  1000000      0.50000      12.25\n"
              "a note\n");
    EXPECT_EQ(table_text({"t", "Nothing", {{"left"}, {"right"}}}), "Nothing\nleft  right\n");
}

TEST(ReportResults, ARunWritesWhatItPrints) {
    TemporaryFolder folder;
    testing::internal::CaptureStdout();
    const int status =
        run_with({"--json", folder / "it's.json", "--quick", "--threads", "1"}, [](ReportRun& run) {
            EXPECT_TRUE(run.options.quick);
            EXPECT_TRUE(run.software());
            run.tables = {example()};
            run.plots = {{"peaks", "rates", "size", "rate", "what"}};
        });
    const std::string out = testing::internal::GetCapturedStdout();
    ASSERT_EQ(status, 0);
    EXPECT_NE(out.find(table_text(example())), std::string::npos) << out;
    const json written = json::parse(read_whole_file(folder / "it's.json"));
    EXPECT_EQ(written.at("program"), run_name);
    EXPECT_EQ(written.at("command"),
              "build/example --device cpu --json '" + folder / "it'\\''s.json' --quick --threads 1");
    EXPECT_EQ(table_to_json(table_from_json(written.at("tables").at(0), "x")), table_to_json(example()));
    EXPECT_EQ(written.at("plots").size(), 1u);
    EXPECT_GE(written.at("seconds").get<double>(), 0);
    const json& machine = written.at("device");
    EXPECT_TRUE(machine.at("gpu").is_null());
    EXPECT_EQ(machine.at("threads"), 1);
    for (const char* name : {"cpu", "system", "kernel", "compiler", "version"})
        EXPECT_NE(machine.at(name).get<std::string>(), "") << name;
    for (const char* name : {"cores", "memory_bytes"})
        EXPECT_GT(machine.at(name).get<uint64_t>(), 0u) << name;
}

// A step is measured if there is time for the longest step so far of at most its size; others are named.
TEST(ReportResults, StepsWithoutTimeAreSkipped) {
    for (const bool limited : {true, false}) {
        TemporaryFolder folder;
        std::string done;
        std::vector<std::string> arguments = {"--json", folder / "a.json"};
        if (limited) arguments.insert(arguments.end(), {"--seconds", "0.5"});
        testing::internal::CaptureStdout();
        const int status = run_with(arguments, [&](ReportRun& run) {
            const auto sleeping = [&](const std::string& name, double size, int milliseconds,
                                      double expected = 0) {
                const auto sleep = [&] { usleep(useconds_t(1000 * milliseconds)), done += name; };
                return run.step(name, size, sleep, expected);
            };
            EXPECT_TRUE(sleeping("a", 1, 1));
            EXPECT_EQ(sleeping("b", 1, 1, 100), !limited);  // expected to take long
            EXPECT_TRUE(sleeping("c", 10, 280));
            EXPECT_EQ(sleeping("d", 10, 1), !limited);
            EXPECT_TRUE(sleeping("e", 9, 1));
            EXPECT_EQ(sleeping("f", 11, 1), !limited);
            run.tables = {example()};
        });
        const std::string out = testing::internal::GetCapturedStdout();
        ASSERT_EQ(status, 0);
        EXPECT_EQ(done, limited ? "ace" : "abcdef");
        EXPECT_EQ(out.find("skipped for lack of time (3 measurements): b; d; f\n") != std::string::npos,
                  limited)
            << out;
        const json written = json::parse(read_whole_file(folder / "a.json"));
        EXPECT_EQ(written.at("left_out"), limited ? json({"b", "d", "f"}) : json::array());
        EXPECT_EQ(written.at("tables").size(), 1u);
    }
}

TEST(ReportResults, AFailedRunWritesNothing) {
    TemporaryFolder folder;
    std::string file = folder / "a.json";
    auto refusal = [&](const std::vector<std::string>& more, const std::function<void(ReportRun&)>& measure) {
        std::vector<std::string> arguments = {"--json", file};
        arguments.insert(arguments.end(), more.begin(), more.end());
        testing::internal::CaptureStdout();
        testing::internal::CaptureStderr();
        EXPECT_EQ(run_with(arguments, measure), 1);
        testing::internal::GetCapturedStdout();
        const std::string err = testing::internal::GetCapturedStderr();
        EXPECT_EQ(count_lines(err), 1) << err;
        EXPECT_EQ(err.find("example: "), 0u) << err;
        EXPECT_TRUE(std::filesystem::is_empty(folder.path));
        return err;
    };
    const auto good = [](ReportRun& run) { run.tables = {example()}; };
    auto spoilt = [](const std::function<void(ReportRun&)>& spoil) {
        return [spoil](ReportRun& run) {
            run.tables = {example()};
            spoil(run);
        };
    };
    EXPECT_NE(refusal({}, spoilt([](ReportRun&) { fail("wrong result at size 50"); })).find("size 50"),
              std::string::npos);
    EXPECT_NE(refusal({}, spoilt([](ReportRun& run) { run.tables[0].rows[0][2] = NAN; })).find("finite"),
              std::string::npos);
    EXPECT_NE(refusal({}, spoilt([](ReportRun& run) { run.tables[0].rows[0].pop_back(); })).find("4 cells"),
              std::string::npos);
    EXPECT_NE(refusal({}, spoilt([](ReportRun& run) { run.plots = {{"none"}}; })).find("does not exist"),
              std::string::npos);
    refusal({"--device", "no such device"}, good);
    refusal({"--threads", "-1"}, good);
    refusal({"--colour"}, good);
    file = folder / "missing/a.json";
    EXPECT_NE(refusal({}, good).find("missing/a.json"), std::string::npos);
}

TEST(ReportResults, TheDeviceIsDescribed) {
    if (test_pads().empty()) GTEST_SKIP() << "no Vulkan device";
    const LaunchPad& pad = *test_pads()[0];
    const std::vector<Fact> gpu = describe_machine(&pad).gpu.value();
    EXPECT_EQ(find_fact(gpu, "name").text(), pad.device().name);
    EXPECT_EQ(find_fact(gpu, "subgroup_size").integer(), pad.limits().subgroup_size);
    EXPECT_EQ(find_fact(gpu, "memory_bytes").integer(), int64_t(pad.device().memory_bytes));
    EXPECT_EQ(find_fact(gpu, "fp16_matrix").is_null(), !pad.limits().fp16_fragment);
    for (const char* name : {"type", "driver", "api_version", "memory_mode"})
        EXPECT_NE(find_fact(gpu, name).text(), "") << name;
}
