// A report as one self-contained HTML page: no scripts, fonts or images from elsewhere. It is also
// well-formed XML.
#pragma once
#include <string>

#include "dev/report/report_file.h"

// The page. If gnuplot is missing or fails, the page says so once and has tables only; `problem` receives the
// message.
std::string report_page(const Report& report, std::string& problem);

// The best results of a table, in its first column where more is better, or else the first where less is
// better. One result for each combination of textual keys ("GPU", "bf16"), the best over its numeric keys
// (sizes).
struct Highlight {
    std::string what, value, unit, where;  // "GPU bf16", "294.0", "TFLOP/s", "size 4096"
};
std::vector<Highlight> highlights(const Table& table);
