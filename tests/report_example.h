// A small report for tests. Every text contains characters that HTML must escape.
#pragma once
#include <nlohmann/json.hpp>

#include "tests/run_program.h"

// Three programs: "sweep" has 40 GEMMs on two devices, one of them without a rate, and two plots; "small" has
// a few rows and one plot; "failed" failed.
inline nlohmann::json nasty_report() {
    nlohmann::json report = nlohmann::json::parse(R"--({"date": "2026-01-02 03:04 UTC", "programs": [
        {"program": "sweep", "what": "<i>what it's for", "command": "'<i>command' control\u0001",
         "device": {"gpu": {"name": "<b>&\"x", "driver": "a driver\u0001", "memory_bytes": 1e10},
                    "cpu": "<i>cpu"},
         "seconds": 1.5,
         "tables": [{"name": "gemms", "title": "The <i>table's \"title\"", "note": "a <i>note & more",
                     "columns": [{"name": "size", "key": true}, {"name": "device", "key": true},
                                 {"name": "rate", "unit": "TFLOP/s", "better": "more"}]}],
         "plots": [{"table": "gemms", "title": "It's the rate", "x": "size", "y": "rate", "curves": "device"},
                   {"table": "gemms", "title": "Linear", "x": "size", "y": "rate", "curves": "",
                    "log_x": false, "log_y": false}]},
        {"program": "small", "command": "small",
         "tables": [{"name": "few", "title": "A few", "rows": [[1, 1], [2, 4], [3, 9]],
                     "columns": [{"name": "<i>column", "key": true}, {"name": "y", "unit": "<i>&'"}]}],
         "plots": [{"table": "few", "title": "Few", "x": "<i>column", "y": "y"}]},
        {"program": "failed", "command": "failed", "error": "<i>error", "device": null,
         "tables": [], "plots": []}
    ]})--");
    nlohmann::json& programs = report["programs"];
    nlohmann::json& rows = programs[0]["tables"][0]["rows"];
    for (int i = 0; i < 20; i++) {
        rows.push_back({100 * i, "<i>cell", 0.1 * i + 0.05});
        rows.push_back({100 * i, "GPU", i == 19 ? 290.5 : 10.0 * i});
    }
    rows[1][2] = nullptr;
    programs[1]["device"] = programs[0]["device"];
    nlohmann::json wide = programs[1]["tables"][0];
    wide["name"] = "wide";
    for (int i = 0; i < 20; i++) wide["columns"].push_back({{"name", "a wide column " + std::to_string(i)}});
    wide["rows"] = {std::vector<double>(22, 1.5)};
    programs[1]["tables"].push_back(wide);
    return report;
}
