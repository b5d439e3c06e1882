// A report as an HTML page: see page.h. From top to bottom: heading, a part for each section, the machine.
#include "dev/report/page.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "dev/report/page_style.h"
#include "llmc/base/error.h"
#include "llmc/base/html.h"

// <name attributes>text</name>. Escapes the text; name and attributes must not need it.
static std::string tag(const std::string& name, const std::string& text, const std::string& attributes = "") {
    return "<" + name + (attributes.empty() ? "" : " " + attributes) + ">" + escape_html(text) + "</" + name +
           ">";
}

// --- tables ---

static std::string table_html(const Table& table) {
    std::string html = "<div class=\"wide\"><table><thead><tr>";
    std::vector<std::string> classes;
    for (size_t c = 0; c < table.columns.size(); c++) {
        const Column& column = table.columns[c];
        classes.push_back(is_text_column(table, c) ? " class=\"t\"" : "");
        html += "<th" + classes[c] + ">" + escape_html(column.name) +
                (column.unit.empty() ? "" : tag("small", column.unit)) + "</th>";
    }
    html += "</tr></thead><tbody>\n";
    for (const std::vector<Cell>& row : table.rows) {
        html += "<tr>";
        for (size_t c = 0; c < row.size(); c++)
            html += "<td" + classes[c] + ">" + escape_html(cell_text(row[c], table.columns[c])) + "</td>";
        html += "</tr>\n";
    }
    return html + "</tbody></table></div>\n";
}

// A long table that is also plotted starts collapsed.
static std::string table_card(const Table& table, bool drawn) {
    const bool open = !drawn || table.rows.size() <= 12;
    std::string html = std::string("<details class=\"card\"") + (open ? " open=\"open\"" : "") +
                       "><summary>" + escape_html(table.title) + " " +
                       tag("span", format_string("%zu rows", table.rows.size()), "class=\"quiet\"") +
                       "</summary>\n" + table_html(table);
    if (!table.note.empty()) html += tag("p", table.note, "class=\"note\"") + "\n";
    return html + "</details>\n";
}

// --- plots ---

static bool can_be_drawn(const Cell& cell, bool log) {
    return cell.is_number() && (!log || cell.number() > 0);
}

std::vector<PlotCurve> plot_curves(const Table& table, const Plot& plot) {
    const size_t x = find_column(table, plot.x), y = find_column(table, plot.y);
    const size_t by = plot.curves.empty() ? table.columns.size() : find_column(table, plot.curves);
    std::vector<PlotCurve> curves;
    for (const std::vector<Cell>& row : table.rows) {
        if (!can_be_drawn(row[x], plot.log_x) || !can_be_drawn(row[y], plot.log_y)) continue;
        const std::string name = by < row.size() ? cell_text(row[by], table.columns[by]) : plot.y;
        auto curve =
            std::find_if(curves.begin(), curves.end(), [&](const PlotCurve& c) { return c.name == name; });
        if (curve == curves.end()) {
            curve = curves.insert(curves.end(), {name, {}, line_style(curves.size())});
            curve->style.dots = true;
        }
        curve->points.push_back({row[x].number(), row[y].number()});
    }
    for (PlotCurve& curve : curves)
        std::stable_sort(curve.points.begin(), curve.points.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
    return curves;
}

static std::string axis_title(const Table& table, const std::string& name) {
    const Column& column = table.columns[find_column(table, name)];
    return column.unit.empty() ? name : name + " (" + column.unit + ")";
}

static std::string legend(const std::vector<PlotCurve>& curves) {
    std::string html = "<ul class=\"legend\">";
    for (const PlotCurve& curve : curves)
        html += "<li><svg viewBox=\"0 0 28 10\" aria-hidden=\"true\"><path d=\"M0 5h28\" stroke=\"" +
                curve.style.colour + "\" stroke-dasharray=\"" + curve.style.dashes +
                "\" stroke-width=\"2.5\"/></svg>" + escape_html(curve.name) + "</li>";
    return html + "</ul>\n";
}

// Empty if no row has a number on both axes.
static std::string plot_figure(const Table& table, const Plot& plot) {
    const std::vector<PlotCurve> curves = plot_curves(table, plot);
    if (curves.empty()) return "";
    const Picture picture = {.description = plot.title,
                             .title = "",
                             .x = {axis_title(table, plot.x), plot.log_x},
                             .panels = {{.y = {axis_title(table, plot.y), plot.log_y}, .curves = curves}},
                             .table = {},
                             .width = 460};
    std::string svg = picture_element(picture);
    svg.insert(4, " role=\"img\" aria-label=\"" + escape_html(plot.title) + "\"");
    return "<figure class=\"card\"><figcaption><h3>" + escape_html(plot.title) + "</h3></figcaption>\n" +
           svg + (plot.curves.empty() ? "" : legend(curves)) + "</figure>\n";
}

// --- a section ---

// A section without a title is called by its name.
static std::string title_of(const ReportPart& part) {
    static const std::map<std::string, std::string> titles = {
        {"peak", "Peak rates"},
        {"matmul_sweep", "Matrix multiplication, by size"},
        {"elementwise_sweep", "Elementwise operations, by size"},
        {"train_benchmark", "Training"}};
    const auto title = titles.find(part.program);
    return title == titles.end() ? part.program : title->second;
}

static std::string seconds_text(double seconds) {
    if (seconds < 99.5) return format_string("%.3g s", seconds);
    return format_string("%.0f min %.0f s", std::floor(seconds / 60), std::fmod(seconds, 60));
}

// The measurements that were expected to take longer than what was left.
static std::string left_out_list(const ReportPart& part) {
    if (part.left_out.empty()) return "";
    std::string html =
        "<details class=\"card\" open=\"open\"><summary>Skipped: the time that was left seemed too short " +
        tag("span", format_string("%zu measurements", part.left_out.size()), "class=\"quiet\"") +
        "</summary>\n<ul>";
    for (const std::string& what : part.left_out) html += tag("li", what);
    return html + "</ul>\n</details>\n";
}

static std::string part_section(const ReportPart& part) {
    std::string plots, tables;
    std::map<std::string, bool> drawn;
    for (const Plot& plot : part.plots) {
        const std::string figure = plot_figure(table_of(part, plot), plot);
        drawn[plot.table] |= !figure.empty();
        plots += figure;
    }
    for (const Table& table : part.tables) tables += table_card(table, drawn[table.name]);
    const std::string took = part.error.empty() ? "took " : "failed after ";
    return "<section id=\"" + escape_html(part.program) + "\">\n" + tag("h2", title_of(part)) + "\n" +
           tag("p", part.what) + "\n" + tag("p", took + seconds_text(part.seconds), "class=\"more\"") + "\n" +
           (part.error.empty() ? "" : tag("div", part.error, "class=\"bad\" role=\"alert\"") + "\n") +
           "<div class=\"plots\">\n" + plots + "</div>\n<div class=\"tables\">\n" + tables + "</div>\n" +
           left_out_list(part) + "</section>\n";
}

// --- the machine ---

static std::string fact_text(const std::string& name, const Cell& value) {
    if (value.is_null()) return "none";
    if (value.is_text()) return value.text();
    if (!name.ends_with("bytes")) return cell_text(value, {name, "", true});
    const double gib = value.number() / (1 << 30);
    return gib >= 1 ? format_string("%.1f GiB", gib) : format_string("%.0f KiB", gib * (1 << 20));
}

// "memory_bytes" becomes "memory", "api_version" "api version".
static std::string facts_html(const std::vector<Fact>& facts) {
    Table table = {"facts", "", {{"property"}, {"value"}}};
    for (const auto& [name, value] : facts) {
        std::string text = name.ends_with("_bytes") ? name.substr(0, name.size() - 6) : name;
        std::replace(text.begin(), text.end(), '_', ' ');
        table.rows.push_back({text, fact_text(name, value)});
    }
    return "<div class=\"card\">" + table_html(table) + "</div>\n";
}

static std::string machine_section(const Machine& machine) {
    return "<section id=\"machine\">\n<h2>Device and driver</h2>\n" +
           (machine.gpu ? facts_html(*machine.gpu) : "<p>No GPU was used.</p>\n") +
           "</section>\n<section>\n<h2>Processor and system</h2>\n" + facts_html(machine.host) +
           "</section>\n";
}

// --- the page ---

static std::string heading(const Report& report, const Machine* machine) {
    const std::string device = device_name(report);
    std::string line = report.date;
    if (report.quick) line += " · quick: fewer and smaller measurements";
    if (machine && machine->gpu) line += " · " + fact_text("", find_fact(*machine->gpu, "driver"));
    std::string html = "<header>\n<p class=\"kicker\">Device report</p>\n" +
                       tag("h1", device.empty() ? "No device" : device) + "\n" +
                       tag("p", line, "class=\"quiet\"") + "\n<nav>";
    for (const ReportPart& part : report.parts)
        html += tag("a", title_of(part), "href=\"#" + escape_html(part.program) + "\"");
    if (machine) html += "<a href=\"#machine\">Device and driver</a>";
    return html + "</nav>\n</header>\n";
}

std::string report_page(const Report& report) {
    std::string failures, sections;
    const Machine* machine = nullptr;
    for (const ReportPart& part : report.parts) {
        if (!machine && part.device) machine = &*part.device;
        if (!part.error.empty())
            failures += tag("div", title_of(part) + " failed: " + part.error, "class=\"bad\"") + "\n";
        sections += part_section(part);
    }
    const std::string device = device_name(report);
    return "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n<meta "
           "charset=\"utf-8\"/>\n"
           "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n" +
           tag("title", "Device report" + (device.empty() ? "" : ": " + device)) + "\n<style>" + page_style +
           "</style>\n</head>\n<body>\n<main>\n" + heading(report, machine) + failures + sections +
           (machine ? machine_section(*machine) : "") +
           (report.command.empty() ? "" : tag("p", "Written by " + report.command, "class=\"more\"") + "\n") +
           "</main>\n</body>\n</html>\n";
}
