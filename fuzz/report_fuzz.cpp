// A device report as JSON, or one program's part of it: reading and writing it again does not change it, and
// it can be printed and compared.
#include <nlohmann/json.hpp>

#include "dev/report/compare.h"
#include "fuzz/fuzz.h"
#include "llmc/base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    expect_no_crash([&] {
        const nlohmann::json input = parse_json_object(text_of(data, size), "input");
        const Report report = report_from_json(input, "input");
        const auto written = report_to_json(report);
        require(report_to_json(report_from_json(written, "written")) == written);
        for (const ReportPart& part : report.parts)
            for (const Table& table : part.tables) require(!table_text(table).empty());
        device_name(report);
        require(!compare_reports(report, report).empty());
    });
    return 0;
}
