// A report as one HTML page that needs nothing but itself: no script, no font, no picture from elsewhere. It
// is XML, too.
#pragma once
#include <string>

#include "dev/report/report_file.h"

// Text as HTML shows it. Characters that XML cannot hold become U+FFFD.
std::string escape_html(const std::string& text);

// The page. Where gnuplot is missing or fails, it says so once and has the tables alone; `problem` gets what
// it says.
std::string report_page(const Report& report, std::string& problem);

// The best of a table in the column that says most of it: the first where more is better, else the first
// where less is. One row for each combination of key columns that hold text ("GPU", "bf16"); sizes are what
// is searched.
struct Highlight {
    std::string what, value, unit, where;  // "GPU bf16", "294.0", "TFLOP/s", "size 4096"
};
std::vector<Highlight> highlights(const Table& table);
