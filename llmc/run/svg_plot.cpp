#include "llmc/run/svg_plot.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/error.h"
#include "llmc/base/html.h"
#include "llmc/base/utf8.h"

static const double margin = 12, left = 56, row_height = 18, sample_width = 22;

LineStyle line_style(size_t index) {
    static const char* const colours[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                          "#B38600", "#4BA3DB", "#8B6BD1", "#868E99"};
    static const char* const dashes[] = {"", "5 3", "1.5 2.5"};
    const size_t count = std::size(colours);
    return {.colour = colours[index % count], .dashes = dashes[index / count % std::size(dashes)]};
}

// --- axes ---

// A linear or logarithmic axis from `low` to `high`, drawn from `start` to `end`.
struct Axis {
    bool log = false;
    double low = 0, high = 1, start = 0, end = 1;
    double at(double value) const {
        const double share =
            log ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
        return start + share * (end - start);
    }
    bool shows(double value) const { return value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9); }
    bool has_place(double value) const { return std::fabs(value) < 1e100 && (!log || value > 1e-100); }
};

// The lowest and the highest of the values that were added.
struct ValueRange {
    double low = INFINITY, high = -INFINITY;
    void add(const Axis& axis, double value) {
        if (axis.has_place(value)) low = std::min(low, value), high = std::max(high, value);
    }
};

static std::string tick_text(double value) {
    const double size = std::fabs(value);
    if (size >= 1e15) return format_string("%.3g", value);
    if (size >= 1e12) return format_string("%.3gT", value / 1e12);
    if (size >= 1e9) return format_string("%.3gG", value / 1e9);
    if (size >= 1e6) return format_string("%.3gM", value / 1e6);
    if (size >= 1e4) return format_string("%.3gk", value / 1e3);
    return format_string("%.5g", value);
}

// Multiples of 1, 2 or 5 times a power of ten, at least `distance` apart in the picture.
static std::vector<double> linear_ticks(const Axis& axis, double distance) {
    const double least = (axis.high - axis.low) * distance / std::fabs(axis.end - axis.start);
    const double power = std::pow(10.0, std::floor(std::log10(least)));
    double step = 10 * power;
    for (double factor : {5, 2, 1})
        if (factor * power >= least) step = factor * power;
    std::vector<double> ticks;
    for (double k = std::ceil(axis.low / step - 1e-9); k * step <= axis.high * (1 + 1e-9); k++)
        ticks.push_back(k * step + 0.0);  // not -0
    return ticks;
}

// Powers of ten first, then what fits between them, then linear ticks if the axis is too short for those.
static std::vector<double> log_ticks(const Axis& axis, double distance) {
    std::vector<double> ticks;
    const int first = int(std::floor(std::log10(axis.low))), last = int(std::ceil(std::log10(axis.high)));
    for (double factor : {1.0, 2.0, 5.0, 3.0, 1.5, 7.0, 4.0, 2.5, 6.0, 8.0, 1.2})
        for (int power = first; power <= last; power++) {
            const double tick = factor * std::pow(10.0, power);
            const bool fits = std::all_of(ticks.begin(), ticks.end(), [&](double other) {
                return std::fabs(axis.at(tick) - axis.at(other)) >= distance;
            });
            if (axis.shows(tick) && fits) ticks.push_back(tick);
        }
    return ticks.size() >= 3 ? ticks : linear_ticks(axis, distance);
}

static std::vector<double> ticks_of(const Axis& axis, double distance) {
    return axis.log ? log_ticks(axis, distance) : linear_ticks(axis, distance);
}

// Takes the range of the values with a little room; a linear axis includes 0.
static void fit(Axis& axis, ValueRange range, double log_room, double linear_room) {
    if (!(range.low <= range.high)) range.low = range.high = 1;
    const double room = axis.log ? std::max(log_room, std::pow(range.high / range.low, 0.04)) : linear_room;
    axis.low = axis.log ? range.low / room : std::min(room * range.low, 0.0);
    axis.high = axis.log ? range.high * room : std::max(room * range.high, 0.0);
    if (!(axis.high > axis.low)) axis.high = axis.low + 1;
}

// The axis of the whole picture, which linear values fill from 0 to the last one.
static Axis horizontal_axis(const Picture& picture, double right) {
    Axis axis = {.log = picture.x.log, .start = left, .end = right};
    ValueRange range;
    for (const PlotPanel& panel : picture.panels)
        for (const PlotCurve& curve : panel.curves)
            for (const auto& [x, y] : curve.points) range.add(axis, x);
    fit(axis, range, 1.04, 1);
    return axis;
}

static Axis vertical_axis(const PlotPanel& panel, double top) {
    Axis axis = {.log = panel.y.log, .start = top + panel.height, .end = top};
    ValueRange range;
    for (const PlotLevel& level : panel.levels) range.add(axis, level.y);
    for (const PlotCurve& curve : panel.curves)
        for (const auto& [x, y] : curve.points) range.add(axis, y);
    fit(axis, range, 1.03, 1.05);
    return axis;
}

// --- text and lines ---

static std::string text_at(double x, double y, const std::string& attributes, const std::string& text) {
    return format_string("<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes.c_str()) +
           escape_html(printable(text)) + "</text>\n";
}

static std::string line_at(double x1, double y1, double x2, double y2, const std::string& attributes) {
    return format_string("<path d=\"M%.1f %.1fL%.1f %.1f\" %s/>\n", x1, y1, x2, y2, attributes.c_str());
}

static std::string stroke(const LineStyle& style) {
    std::string text = format_string("stroke=\"%s\" stroke-width=\"%g\"", style.colour.c_str(), style.width);
    if (style.opacity != 1) text += format_string(" opacity=\"%g\"", style.opacity);
    return style.dashes.empty() ? text : text + " stroke-dasharray=\"" + style.dashes + "\"";
}

static std::string ring_at(double x, double y, const std::string& colour) {
    return format_string("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5.5\" stroke=\"%s\" stroke-width=\"2\"/>\n", x,
                         y, colour.c_str());
}

// An estimate, which suits wide fonts.
static double text_width(const std::string& text) {
    double width = 0;
    for (size_t at = 0; at < text.size();) {
        const Character c = first_character(std::string_view(text).substr(at));
        const bool is_wide = c.bytes == 1 && std::string_view("mwMW@%").find(text[at]) < std::string::npos;
        const bool is_large = c.code >= '0' && c.code <= '_';  // digits and capitals
        width += c.code >= 0x1100 ? 13 : is_wide ? 12 : is_large ? 8.5 : 7.4;
        at += std::max<size_t>(c.bytes, 1);
    }
    return width;
}

// Text that is set closer if it would be wider than there is room.
static std::string fitted_text(double x, double y, double room, const std::string& text, double scale = 1) {
    const bool fits = scale * text_width(text) <= room;
    return text_at(x, y,
                   fits ? "text-anchor=\"start\""
                        : format_string("text-anchor=\"start\" textLength=\"%.0f\" "
                                        "lengthAdjust=\"spacingAndGlyphs\"",
                                        room),
                   text);
}

// --- legend and table ---

struct LegendEntry {
    std::string text;
    LineStyle style;
    bool is_ring = false;
};

// The part of the picture that was drawn so far, and where the next part begins.
struct Drawing {
    std::string svg;
    double y = 0;
};

static std::vector<LegendEntry> legend_entries(const Picture& picture) {
    std::vector<LegendEntry> entries;
    for (const PlotPanel& panel : picture.panels) {
        for (const PlotCurve& curve : panel.curves) entries.push_back({curve.name, curve.style});
        for (const PlotLevel& level : panel.levels) entries.push_back({level.name, level.style});
        for (const PlotRing& ring : panel.rings)
            entries.push_back({ring.text, {.colour = ring.colour}, true});
    }
    std::erase_if(entries, [](const LegendEntry& entry) { return entry.text.empty(); });
    return entries;
}

static std::string sample(double x, double y, const LineStyle& style) {
    LineStyle visible = style;
    visible.opacity = 1, visible.width = 3;
    return line_at(x, y - 4, x + sample_width, y - 4, stroke(visible));
}

// In rows; many entries also in columns.
static void draw_legend(Drawing& drawing, const std::vector<LegendEntry>& entries, double width) {
    const double room = width - left - margin, gap = 18;
    double widest = 0;
    for (const LegendEntry& entry : entries)
        widest = std::max(widest, sample_width + 6 + text_width(entry.text) + gap);
    const double column = room / std::max(1.0, std::floor(room / widest));
    double x = left;
    for (size_t i = 0; i < entries.size(); i++) {
        const LegendEntry& entry = entries[i];
        const double own = sample_width + 6 + text_width(entry.text) + gap;
        const double taken = std::min(room, entries.size() > 4 ? column : own);
        const bool begins_row = i == 0 || x + taken > left + room + gap + 0.1;
        if (begins_row) x = left, drawing.y += row_height;
        drawing.svg += entry.is_ring ? ring_at(x + sample_width / 2, drawing.y - 4, entry.style.colour)
                                     : sample(x, drawing.y, entry.style);
        const double end = std::min(x + taken, left + room);
        drawing.svg += fitted_text(x + sample_width + 6, drawing.y, end - x - sample_width - 6, entry.text);
        x += taken;
    }
}

// The first column takes the room that the others leave.
static void draw_table(Drawing& drawing, const PlotTable& table, double width) {
    std::vector<double> ends(table.columns.size());
    double end = width - margin;
    for (size_t i = table.columns.size(); i-- > 1;) {
        ends[i] = end;
        double widest = text_width(table.columns[i]);
        for (const auto& row : table.rows) widest = std::max(widest, text_width(row[i]));
        end -= widest + 16;
    }
    auto draw_row = [&](const std::vector<std::string>& cells, const std::string& weight) {
        drawing.y += row_height;
        const double x = left + sample_width + 6;
        drawing.svg += "<g" + weight + ">\n" + fitted_text(x, drawing.y, end - x, cells[0]);
        for (size_t i = 1; i < cells.size(); i++)
            drawing.svg += text_at(ends[i], drawing.y, "text-anchor=\"end\"", cells[i]);
        drawing.svg += "</g>\n";
    };
    draw_row(table.columns, " font-weight=\"bold\"");
    for (size_t i = 0; i < table.rows.size(); i++) {
        draw_row(table.rows[i], "");
        drawing.svg += sample(left, drawing.y, table.styles[i]);
    }
}

// --- panels ---

// The lowest and the highest of every few points, which draw the same line as all of them.
static Series thinned(const Series& series) {
    const size_t group = series.size() / 500 + 1;
    if (group < 3) return series;
    Series kept;
    for (size_t i = 0; i < series.size(); i += group) {
        const auto end = series.begin() + ptrdiff_t(std::min(series.size(), i + group));
        auto [low, high] = std::minmax_element(series.begin() + ptrdiff_t(i), end,
                                               [](auto& a, auto& b) { return a.second < b.second; });
        if (high < low) std::swap(low, high);
        kept.push_back(*low);
        if (high != low) kept.push_back(*high);
    }
    return kept;
}

static std::string draw_curve(const PlotCurve& curve, const Axis& x, const Axis& y) {
    Series points;
    for (const auto& point : curve.points)
        if (x.has_place(point.first) && y.has_place(point.second)) points.push_back(point);
    std::string path, dots;
    for (const auto& [at, value] : thinned(points))
        path += format_string("%c%.1f %.1f", path.empty() ? 'M' : 'L', x.at(at), y.at(value));
    if (path.empty()) return "";
    for (const auto& [at, value] : curve.style.dots ? points : Series())
        dots += format_string("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.2\" fill=\"%s\"/>\n", x.at(at),
                              y.at(value), curve.style.colour.c_str());
    return "<path d=\"" + path + "\" " + stroke(curve.style) + " class=\"curve\"/>\n" + dots;
}

// Grid, ticks and title of a panel. Only the lowest panel has labels on its horizontal axis.
static std::string draw_frame(const PlotPanel& panel, const Axis& x, const Axis& y, bool is_lowest) {
    const std::string grid = "class=\"gridline\"";
    std::string svg;
    for (double tick : ticks_of(x, 70)) {
        svg += line_at(x.at(tick), y.start, x.at(tick), y.end, grid);
        if (is_lowest) svg += text_at(x.at(tick), y.start + 16, "text-anchor=\"middle\"", tick_text(tick));
    }
    for (double tick : ticks_of(y, 17)) {
        svg += line_at(x.start, y.at(tick), x.end, y.at(tick), grid);
        svg += text_at(x.start - 5, y.at(tick) + 4, "text-anchor=\"end\"", tick_text(tick));
    }
    svg += line_at(x.start, y.start, x.end, y.start, "class=\"axis\"");
    svg += line_at(x.start, y.start, x.start, y.end, "class=\"axis\"");
    return svg + text_at(x.start, y.end - 6, "font-weight=\"bold\"", panel.y.title);
}

static std::string draw_right_axis(const PlotPanel& panel, const Axis& x, const Axis& y) {
    Axis right = y;
    right.low *= panel.right_factor, right.high *= panel.right_factor;
    std::string svg = line_at(x.end, y.start, x.end, y.end, "class=\"axis\"");
    for (double tick : ticks_of(right, 17)) {
        svg += line_at(x.end, right.at(tick), x.end + 4, right.at(tick), "class=\"axis\"");
        svg += text_at(x.end + 6, right.at(tick) + 4, "text-anchor=\"start\"", tick_text(tick));
    }
    return svg + text_at(x.end, y.end - 6, "font-weight=\"bold\" text-anchor=\"end\"", panel.right_title);
}

static void draw_panel(Drawing& drawing, const PlotPanel& panel, const Axis& x, bool is_lowest) {
    const double title_height = 24;
    const Axis y = vertical_axis(panel, drawing.y + title_height);
    drawing.svg += draw_frame(panel, x, y, is_lowest);
    if (panel.right_factor > 0) drawing.svg += draw_right_axis(panel, x, y);
    for (const PlotLevel& level : panel.levels)
        if (y.has_place(level.y))
            drawing.svg += line_at(x.start, y.at(level.y), x.end, y.at(level.y), stroke(level.style));
    for (const PlotCurve& curve : panel.curves) drawing.svg += draw_curve(curve, x, y);
    for (const PlotRing& ring : panel.rings)
        if (x.has_place(ring.x) && y.has_place(ring.y))
            drawing.svg += ring_at(x.at(ring.x), y.at(ring.y), ring.colour);
    drawing.y = y.start;
}

static void draw_panels(Drawing& drawing, const Picture& picture) {
    const bool has_right_axis = std::any_of(picture.panels.begin(), picture.panels.end(),
                                            [](const PlotPanel& panel) { return panel.right_factor > 0; });
    const Axis x = horizontal_axis(picture, picture.width - (has_right_axis ? 48 : 24));
    for (const PlotPanel& panel : picture.panels)
        draw_panel(drawing, panel, x, &panel == &picture.panels.back());
    drawing.y += 34;
    drawing.svg += text_at((x.start + x.end) / 2, drawing.y, "text-anchor=\"middle\"", picture.x.title);
}

static std::string svg_tag(const Picture& picture, double height, const std::string& attributes) {
    return format_string(
               "<svg viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"12.5\" "
               "fill=\"none\" stroke-linejoin=\"round\"",
               picture.width, height) +
           attributes + ">\n";
}

std::string picture_element(const Picture& picture) {
    Drawing drawing;
    draw_panels(drawing, picture);
    return svg_tag(picture, drawing.y + 8, "") + drawing.svg + "</svg>\n";
}

std::string picture_file(const Picture& picture) {
    Drawing drawing = {.y = 4};
    if (!picture.title.empty()) {
        drawing.y += 24;
        drawing.svg += "<g font-size=\"17\">" +
                       fitted_text(margin, drawing.y, picture.width - 2 * margin, picture.title, 17 / 12.5) +
                       "</g>\n";
    }
    draw_legend(drawing, legend_entries(picture), picture.width);
    draw_panels(drawing, picture);
    if (!picture.table.rows.empty()) {
        drawing.y += 10;
        draw_table(drawing, picture.table, picture.width);
    }
    const double height = std::ceil(drawing.y + 10);
    return svg_tag(picture, height,
                   format_string(" xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\"",
                                 picture.width, height)) +
           "<title>" + escape_html(picture.description) +
           "</title>\n<style>text{fill:#222222}.axis{stroke:#666666}.gridline{stroke:#dddddd}</style>\n"
           "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n" +
           drawing.svg + "</svg>\n";
}
