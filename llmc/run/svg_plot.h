// Pictures of curves, as SVG text: panels one below the other over one horizontal axis, a legend above them
// and a table below. A program makes a Picture and draws it; ranges, ticks and the layout follow from it.
#pragma once
#include <string>
#include <utility>
#include <vector>

// x and y, in the order of x.
using Series = std::vector<std::pair<double, double>>;

struct LineStyle {
    std::string colour = "#666666";
    std::string dashes;  // of SVG's stroke-dasharray; "": a solid line
    double width = 2, opacity = 1;
    bool dots = false;  // at the points
};

// Colour and dashes of the curve with this index, distinct for at least 16 curves, readable on white and on
// black.
LineStyle line_style(size_t index);

// Curves and levels without a name are not in the legend.
struct PlotCurve {
    std::string name;
    Series points;  // what has no place on the axes is left out: NaN, and 0 on logarithmic ones
    LineStyle style;
};

// A horizontal line across the panel.
struct PlotLevel {
    std::string name;
    double y;
    LineStyle style;
};

// A ring around a point. Its text is in the legend, where no curve is.
struct PlotRing {
    std::string text;
    double x, y;
    std::string colour;
};

struct PlotAxis {
    std::string title;
    bool log = false;  // a linear axis includes 0
};

struct PlotPanel {
    PlotAxis y;
    double height = 262;
    std::vector<PlotCurve> curves;  // later ones lie above earlier ones
    std::vector<PlotLevel> levels;
    std::vector<PlotRing> rings;
    std::string right_title;  // of a second axis on the right, if right_factor is not 0
    double right_factor = 0;  // its values are y times this, which is positive
};

// Row i begins with a sample of styles[i].
struct PlotTable {
    std::vector<std::string> columns;
    std::vector<std::vector<std::string>> rows;
    std::vector<LineStyle> styles;
};

struct Picture {
    std::string description;  // the <title> element, which nobody sees in the picture
    std::string title;        // "": none
    PlotAxis x;
    std::vector<PlotPanel> panels;
    PlotTable table;
    double width = 600;
};

// A file of its own, with white background.
std::string picture_file(const Picture& picture);

// An <svg> element for a page, without title, legend and table. The page's style sheet sets the colours of
// text and of the classes "axis" and "gridline"; curves have the class "curve".
std::string picture_element(const Picture& picture);
