// Plots of tables, drawn by gnuplot as SVG.
#pragma once
#include <string>
#include <vector>

#include "dev/report/tables.h"

// One curve: its name in the legend, its colour, and its points, sorted by x.
struct Curve {
    std::string name, colour;
    std::vector<std::pair<double, double>> points;
};

// The curves of a plot, in the order of the table. Cells that are not numbers are skipped, on logarithmic
// axes also numbers that are not positive.
std::vector<Curve> plot_curves(const Table& table, const Plot& plot);

// The plot as an <svg> element for a page, without legend. The page's style sheet sets the colours of the
// text and of the classes "axis" and "gridline". Ids begin with `prefix`, which must be unique in the page.
// Throws Error if gnuplot is missing or fails.
std::string plot_svg(const Table& table, const Plot& plot, const std::string& prefix);

// The plot as a standalone SVG file, with title, legend and white background.
std::string plot_picture(const Table& table, const Plot& plot);
