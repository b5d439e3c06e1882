// A small report for tests. Every text contains characters that HTML must escape.
#pragma once
#include <nlohmann/json.hpp>

#include "tests/run_program.h"

// Three programs: "sweep" has 40 GEMMs on two devices, one of them without a rate, and two plots; "small" has
// a few rows and one plot; "failed" failed.
inline nlohmann::json nasty_report() {
    using nlohmann::json;
    json rows = json::array(), few = json::array();
    for (int i = 0; i < 20; i++) {
        rows.push_back({100 * i, "<i>cell", 0.1 * i + 0.05});
        rows.push_back({100 * i, "GPU", i == 19 ? 290.5 : 10.0 * i});
    }
    rows[1][2] = nullptr;
    for (int i = 1; i <= 3; i++) few.push_back({i, i * i});
    const json gemms = {{"name", "gemms"},
                        {"title", "The <i>table's \"title\""},
                        {"note", "a <i>note & more"},
                        {"columns",
                         {{{"name", "size"}, {"key", true}},
                          {{"name", "device"}, {"key", true}},
                          {{"name", "rate"}, {"unit", "TFLOP/s"}, {"better", "more"}}}},
                        {"rows", rows}};
    const json table = {
        {"name", "few"},
        {"title", "A few"},
        {"columns", {{{"name", "<i>column"}, {"key", true}}, {{"name", "y"}, {"unit", "<i>&'"}}}},
        {"rows", few}};
    json wide = table;
    wide["name"] = "wide";
    for (int i = 0; i < 20; i++) wide["columns"].push_back({{"name", "a wide column " + std::to_string(i)}});
    wide["rows"] = json::array({json::array()});
    for (int i = 0; i < 22; i++) wide["rows"][0].push_back(1.5);
    const json plots = {
        {{"table", "gemms"}, {"title", "It's the rate"}, {"x", "size"}, {"y", "rate"}, {"curves", "device"}},
        {{"table", "gemms"},
         {"title", "Linear"},
         {"x", "size"},
         {"y", "rate"},
         {"curves", ""},
         {"log_x", false},
         {"log_y", false}}};
    const json plot = {{"table", "few"}, {"title", "Few"}, {"x", "<i>column"}, {"y", "y"}};
    const json device = {{"gpu", {{"name", "<b>&\"x"}, {"driver", "a driver\x01"}, {"memory_bytes", 1e10}}},
                         {"cpu", "<i>cpu"}};
    const json sweep = {{"program", "sweep"},
                        {"what", "<i>what it's for"},
                        {"command", "'<i>command' control\x01"},
                        {"device", device},
                        {"seconds", 1.5},
                        {"tables", json::array({gemms})},
                        {"plots", plots}};
    const json small = {{"program", "small"},
                        {"command", "small"},
                        {"device", device},
                        {"tables", json::array({table, wide})},
                        {"plots", json::array({plot})}};
    const json failed = {{"program", "failed"}, {"command", "failed"},     {"error", "<i>error"},
                         {"device", nullptr},   {"tables", json::array()}, {"plots", json::array()}};
    return {{"date", "2026-01-02 03:04 UTC"}, {"programs", json::array({sweep, small, failed})}};
}
