// Two reports side by side, as text.
#pragma once
#include <string>

#include "dev/report/report_file.h"

// For each table in both reports and each column of results: the rows whose keys agree, with A, B and B/A.
// Columns that can be rated also show better, worse, or same (within 2 %). Rows and tables in only one report
// are counted.
std::string compare_reports(const Report& a, const Report& b);
