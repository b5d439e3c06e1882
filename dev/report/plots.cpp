// Plots of tables: see plots.h. gnuplot reads its script, which contains the data, from standard input.
#include "dev/report/plots.h"

#include <algorithm>
#include <cmath>

#include "dev/report/child.h"
#include "llmc/base/error.h"

// Readable on white and on black; adjacent colours also differ in lightness.
static const char* const colours[] = {"#3b82d0", "#d9731c", "#2f9e60", "#d1495b",
                                      "#8b6bd1", "#12a0a8", "#b38600", "#868e99"};

static size_t find_column(const Table& table, const std::string& name) {
    for (size_t i = 0; i < table.columns.size(); i++)
        if (table.columns[i].name == name) return i;
    fail("table %s has no column %s", table.name.c_str(), name.c_str());
}

static bool can_be_drawn(const Cell& cell, bool log) {
    return cell.is_number() && (!log || cell.number() > 0);
}

std::vector<Curve> plot_curves(const Table& table, const Plot& plot) {
    const size_t x = find_column(table, plot.x), y = find_column(table, plot.y);
    const size_t by = plot.curves.empty() ? table.columns.size() : find_column(table, plot.curves);
    std::vector<Curve> curves;
    for (const std::vector<Cell>& row : table.rows) {
        if (!can_be_drawn(row[x], plot.log_x) || !can_be_drawn(row[y], plot.log_y)) continue;
        const std::string name = by < row.size() ? cell_text(row[by], table.columns[by]) : plot.y;
        auto curve =
            std::find_if(curves.begin(), curves.end(), [&](const Curve& c) { return c.name == name; });
        if (curve == curves.end())
            curve = curves.insert(curves.end(), {name, colours[curves.size() % std::size(colours)], {}});
        curve->points.push_back({row[x].number(), row[y].number()});
    }
    for (Curve& curve : curves)
        std::stable_sort(curve.points.begin(), curve.points.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
    return curves;
}

// Within gnuplot's single quotes only the quote and the end of the line are special.
static std::string quoted(const std::string& text) {
    std::string result = "'";
    for (char c : text) result += c == '\'' ? std::string("''") : std::string(1, uint8_t(c) < ' ' ? ' ' : c);
    return result + "'";
}

static std::string axis_title(const Column& column) {
    return column.unit.empty() ? column.name : column.name + " (" + column.unit + ")";
}

// "0.25", "5", "20k", "1M"
static std::string tick_text(double value) {
    const char* const factors[] = {"", "k", "M", "G", "T"};
    size_t factor = 0;
    for (; std::fabs(value) >= 999.5 && factor + 1 < std::size(factors); value /= 1000) factor++;
    return format_string("%.3g%s", value, factors[factor]);
}

// gnuplot labels every power of ten and nothing else: too few for two decades, too many for ten.
static std::string log_ticks(char axis, double low, double high) {
    const double decades = std::log10(high / low);
    const std::vector<double> steps = decades < 0.6   ? std::vector<double>{1, 1.5, 2, 2.5, 3, 4, 5, 6, 8}
                                      : decades < 1.2 ? std::vector<double>{1, 2, 3, 5, 7}
                                      : decades < 2.6 ? std::vector<double>{1, 2, 5}
                                                      : std::vector<double>{1};
    const int stride = std::max(1, int(std::ceil(decades / 7)));
    std::string list;
    for (int power = int(std::floor(std::log10(low))); power <= int(std::ceil(std::log10(high))); power++) {
        if (power % stride) continue;
        for (double step : steps) {
            const double value = step * std::pow(10.0, power);
            list += (list.empty() ? "" : ", ") + quoted(tick_text(value)) + format_string(" %.17g", value);
        }
    }
    return format_string("set logscale %c\nset %ctics (%s)\n", axis, axis, list.c_str());
}

// About five ticks, at multiples of 1, 2 or 5 times a power of ten.
static std::string linear_ticks(char axis, double low, double high) {
    const double rough = (high - low) / 5, power = std::pow(10.0, std::floor(std::log10(rough)));
    double step = power;
    for (double factor : {2, 5, 10})
        if (step < rough * 0.99) step = factor * power;
    std::string list;
    for (double k = std::ceil(low / step); k * step <= high * (1 + 1e-9); k++)
        list += (list.empty() ? "" : ", ") + quoted(tick_text(k * step)) + format_string(" %.17g", k * step);
    return format_string("set %ctics (%s)\n", axis, list.c_str());
}

// Range and ticks of one axis. A logarithmic axis gets a margin of 4 % at both ends; a linear one starts at
// 0.
static std::string axis_script(char axis, bool log, double low, double high) {
    const double margin = log ? std::max(1.04, std::pow(high / low, 0.04)) : 1.04;
    low = log ? low / margin : std::min(low, 0.0);
    high = high > low ? high * margin : low + 1;
    return format_string("set %crange [%.17g:%.17g]\n", axis, low, high) +
           (log ? log_ticks(axis, low, high) : linear_ticks(axis, low, high));
}

static std::string script(const Table& table, const Plot& plot, const std::vector<Curve>& curves,
                          const std::string& setting) {
    double low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
    std::string data, curve_list;
    for (size_t i = 0; i < curves.size(); i++) {
        data += format_string("$curve%zu << END\n", i);
        for (const auto& [x, y] : curves[i].points) {
            low[0] = std::min(low[0], x), high[0] = std::max(high[0], x);
            low[1] = std::min(low[1], y), high[1] = std::max(high[1], y);
            data += format_string("%.17g %.17g\n", x, y);
        }
        data += "END\n";
        curve_list += format_string("%s$curve%zu with linespoints lw 2.2 pt 7 ps 0.55 lc rgb '%s' title ",
                                    i ? ", " : "", i, curves[i].colour.c_str()) +
                      quoted(curves[i].name);
    }
    const std::string x_title = axis_title(table.columns[find_column(table, plot.x)]);
    const std::string y_title = axis_title(table.columns[find_column(table, plot.y)]);
    return "set encoding utf8\n" + setting +
           "set border 3 lc rgb '#000001'\n"
           "set tics nomirror scale 0.6 textcolor rgb '#000001'\n"
           "set grid lt 1 lw 1 lc rgb '#d8dce2'\n"
           "set xlabel " +
           quoted(x_title) +
           " offset 0,0.3\n"
           "set label " +
           quoted(y_title) + " at graph 0, screen label_height left\n" +
           axis_script('x', plot.log_x, low[0], high[0]) + axis_script('y', plot.log_y, low[1], high[1]) +
           data + "plot " + curve_list + "\n";
}

static std::string draw(const std::string& script_text) {
    const ChildResult result = run_child({"gnuplot"}, 20, script_text);
    const size_t start = result.out.find("<svg"), end = result.out.rfind("</svg>");
    if (result.timed_out) fail("gnuplot took longer than 20 s");
    if (result.status != 0 || start == std::string::npos || end == std::string::npos) {
        // its message is the last line that is not empty; lines above it show the position in the script
        const size_t last = result.err.find_last_not_of("\n ");
        const std::string err = result.err.substr(0, last + 1);
        fail("gnuplot failed: %s", err.substr(err.rfind('\n') + 1).c_str());
    }
    return result.out.substr(start, end + 6 - start) + "\n";
}

static void replace_all(std::string& text, const std::string& from, const std::string& to) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
        text.replace(at, from.size(), to);
}

static void erase_all(std::string& text, const std::string& from, const std::string& to) {
    size_t start;
    while ((start = text.find(from)) != std::string::npos) {
        const size_t end = text.find(to, start);
        text.erase(start, end == std::string::npos ? end : end + to.size() - start);
    }
}

static void check_points(const std::vector<Curve>& curves) {
    if (curves.empty()) fail("the plot is empty: no row has a number on both axes");
}

std::string plot_svg(const Table& table, const Plot& plot, const std::string& prefix) {
    const std::vector<Curve> curves = plot_curves(table, plot);
    check_points(curves);
    std::string svg =
        draw(script(table, plot, curves,
                    "set terminal svg noenhanced size 460,310 dynamic font 'sans-serif,15' rounded\n"
                    "label_height = 0.95\nunset key\nset tmargin at screen 0.9\nset rmargin 2.5\n"));
    erase_all(svg, "<title>", "</title>\n");
    erase_all(svg, "<desc>", "</desc>\n");
    erase_all(svg, "<filter ", "</filter>\n");
    replace_all(svg, "stroke='rgb(  0,   0,   1)'", "class='axis'");
    for (const char* fill : {" fill=\"rgb(0,0,1)\"", " fill=\"black\""}) replace_all(svg, fill, "");
    for (const char* quote : {"'", "\""})
        replace_all(svg, std::string("id=") + quote, std::string("id=") + quote + prefix);
    replace_all(svg, "xlink:href='#", "xlink:href='#" + prefix);
    return svg;
}

std::string plot_picture(const Table& table, const Plot& plot) {
    const std::vector<Curve> curves = plot_curves(table, plot);
    check_points(curves);
    size_t longest = 0;
    for (const Curve& curve : curves) longest = std::max(longest, curve.name.size());
    const int columns =
        std::clamp(680 / int(11 * longest + 60), 1, 3);  // by gnuplot's generous estimate of text width
    const int rows = (int(curves.size()) + columns - 1) / columns, height = 400 + 24 * rows;
    auto screen = [&](int from_bottom) { return double(from_bottom) / height; };
    std::string setting = format_string(
        "set terminal svg noenhanced size 680,%d dynamic background 'white' font 'sans-serif,14' rounded\n"
        "set key at screen 0.5, screen %.4f bottom center horizontal maxcols %d Left reverse samplen 2 width "
        "2\n"
        "label_height = %.4f\nset tmargin at screen %.4f\nset bmargin at screen %.4f\nset rmargin 3\n",
        height, screen(10), columns, screen(height - 50), screen(height - 66), screen(68 + 24 * rows));
    setting += "set label " + quoted(plot.title) +
               format_string(" at graph 0, screen %.4f left font 'sans-serif,17'\n", screen(height - 22));
    return "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n" + draw(script(table, plot, curves, setting));
}
