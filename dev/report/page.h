// A report as one self-contained HTML page: no scripts, fonts or images from elsewhere. It is also
// well-formed XML.
#pragma once
#include <string>

#include "dev/report/report_file.h"
#include "llmc/run/svg_plot.h"

std::string report_page(const Report& report);

// The curves of a plot, in the order of the table, sorted by x. Cells that are not numbers are skipped, on
// logarithmic axes also numbers that are not positive.
std::vector<PlotCurve> plot_curves(const Table& table, const Plot& plot);
