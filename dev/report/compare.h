// Two reports side by side, as text.
#pragma once
#include <string>

#include "dev/report/report_file.h"

// For each table that both have and each column of values: the rows whose keys agree, as A, B and B/A, with
// better, worse or, within 2 %, same where the column says which way is good. Rows and tables that only one
// has are counted.
std::string compare_reports(const Report& a, const Report& b);
