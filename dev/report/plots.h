// Plots of tables, drawn by gnuplot as SVG.
#pragma once
#include <string>
#include <vector>

#include "dev/report/results.h"

// One curve: its name for the legend, its colour, and its points in the order of x.
struct Curve {
    std::string name, colour;
    std::vector<std::pair<double, double>> points;
};

// The curves of a plot, in the order in which the table names them. Cells that are not numbers are left out,
// and on logarithmic axes those that are not above 0.
std::vector<Curve> plot_curves(const Table& table, const Plot& plot);

// The plot as an <svg> element for a page, which gives the classes "axis" and "gridline" and the text their
// colours; ids begin with `prefix`, since a page has several of them. The legend is not in it. Throws Error
// where gnuplot is missing or fails.
std::string plot_svg(const Table& table, const Plot& plot, const std::string& prefix);

// The same as a picture of its own, with title, legend and a white background.
std::string plot_picture(const Table& table, const Plot& plot);
