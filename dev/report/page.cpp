// A report as an HTML page: see page.h. From top to bottom: heading, summary, a section for each program, the
// machine.
#include "dev/report/page.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "dev/report/page_style.h"
#include "dev/report/plots.h"
#include "llmc/base/error.h"
#include "llmc/base/html.h"

// <name attributes>text</name>. Escapes the text; name and attributes must not need it.
static std::string tag(const std::string& name, const std::string& text, const std::string& attributes = "") {
    return "<" + name + (attributes.empty() ? "" : " " + attributes) + ">" + escape_html(text) + "</" + name +
           ">";
}

// --- highlights ---

// The column that highlights() rates; the number of columns if there is none.
static size_t rated_column(const Table& table) {
    for (Better better : {Better::more, Better::less})
        for (size_t i = 0; i < table.columns.size(); i++)
            if (!table.columns[i].key && table.columns[i].better == better) return i;
    return table.columns.size();
}

static bool beats(const Cell& a, const Cell& b, Better better) {
    if (!a.is_number()) return false;
    if (!b.is_number()) return true;
    return better == Better::more ? a.number() > b.number() : a.number() < b.number();
}

// The row's textual keys, without those contained in another: "CPU fp32" for "CPU", "fp32", "CPU fp32".
static std::string text_keys(const Table& table, const std::vector<Cell>& row) {
    std::vector<std::string> keys;
    for (size_t i = 0; i < row.size(); i++)
        if (table.columns[i].key && row[i].is_text()) keys.push_back(row[i].text());
    std::string text;
    for (size_t i = 0; i < keys.size(); i++) {
        bool repeated = false;
        for (size_t j = 0; j < keys.size(); j++)
            repeated |= j != i && keys[j].find(keys[i]) != std::string::npos && (keys[j] != keys[i] || j < i);
        if (!repeated) text += (text.empty() ? "" : " ") + keys[i];
    }
    return text;
}

std::vector<Highlight> highlights(const Table& table) {
    const size_t value = rated_column(table);
    if (value == table.columns.size()) return {};
    const Column& column = table.columns[value];
    std::vector<std::pair<std::string, const std::vector<Cell>*>> best;  // in table order
    for (const std::vector<Cell>& row : table.rows) {
        const std::string what = text_keys(table, row);
        auto found = std::find_if(best.begin(), best.end(), [&](const auto& b) { return b.first == what; });
        if (found == best.end())
            best.push_back({what, &row});
        else if (beats(row[value], (*found->second)[value], column.better))
            found->second = &row;
    }
    std::vector<Highlight> result;
    for (const auto& [what, row] : best) {
        if (!(*row)[value].is_number()) continue;
        std::string where;
        for (size_t i = 0; i < row->size(); i++)
            if (table.columns[i].key && (*row)[i].is_number())
                where += (where.empty() ? "" : ", ") + table.columns[i].name + " " +
                         cell_text((*row)[i], table.columns[i]);
        result.push_back(
            {what.empty() ? column.name : what, cell_text((*row)[value], column), column.unit, where});
    }
    return result;
}

// A short table without sizes among its keys: shown in the summary, as is the first table of each program.
static bool is_summary(const Table& table) {
    bool summary = table.rows.size() <= 8;
    for (size_t i = 0; i < table.columns.size(); i++)
        summary = summary && (!table.columns[i].key || is_text_column(table, i));
    return summary;
}

// What a section is called; a program without a title is called by its name.
static std::string title_of(const ReportPart& part) {
    static const std::map<std::string, std::string> titles = {
        {"peak", "Peak rates"},
        {"dispatch_overhead", "Cost of a launch"},
        {"matmul_sweep", "Matrix multiplication, by size"},
        {"elementwise_sweep", "Elementwise operations, by size"},
        {"train_benchmark", "Training"}};
    const auto title = titles.find(part.program);
    return title == titles.end() ? part.program : title->second;
}

static std::string highlights_card(const ReportPart& part, const Table& table) {
    const std::vector<Highlight> all = highlights(table);
    const size_t most = 8;
    if (all.empty()) return "";
    std::string html = "<div class=\"card\"><h3>" + escape_html(table.title) + "</h3>\n<dl class=\"best\">\n";
    for (size_t i = 0; i < std::min(all.size(), most); i++) {
        const Highlight& h = all[i];
        html += "<div><dt>" + escape_html(h.what) + (h.where.empty() ? "" : tag("small", h.where)) +
                "</dt><dd>" + tag("b", h.value) + " " + tag("small", h.unit) + "</dd></div>\n";
    }
    html += "</dl>\n";
    if (all.size() > most)
        html += "<p class=\"more\"><a href=\"#" + escape_html(part.program) + "\">" +
                format_string("%zu more", all.size() - most) + "</a></p>\n";
    return html + "</div>\n";
}

// --- one program's section ---

static std::string heading_cell(const Column& column, bool text) {
    return std::string("<th") + (text ? " class=\"t\"" : "") + ">" + escape_html(column.name) +
           (column.unit.empty() ? "" : tag("small", column.unit)) + "</th>";
}

static std::string table_html(const Table& table) {
    std::string html = "<div class=\"wide\"><table><thead><tr>";
    for (size_t c = 0; c < table.columns.size(); c++)
        html += heading_cell(table.columns[c], is_text_column(table, c));
    html += "</tr></thead><tbody>\n";
    for (const std::vector<Cell>& row : table.rows) {
        html += "<tr>";
        for (size_t c = 0; c < row.size(); c++)
            html +=
                tag("td", cell_text(row[c], table.columns[c]), is_text_column(table, c) ? "class=\"t\"" : "");
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

static std::string legend(const std::vector<Curve>& curves) {
    std::string html = "<ul class=\"legend\">";
    for (const Curve& curve : curves)
        html += "<li><svg viewBox=\"0 0 20 10\" aria-hidden=\"true\"><path d=\"M0 5h20\" stroke=\"" +
                curve.colour + "\" stroke-width=\"2.5\"/><circle cx=\"10\" cy=\"5\" r=\"3.5\" fill=\"" +
                curve.colour + "\"/></svg>" + escape_html(curve.name) + "</li>";
    return html + "</ul>\n";
}

static std::string plot_figure(const Table& table, const Plot& plot, const std::string& prefix) {
    std::string svg = plot_svg(table, plot, prefix);
    svg.insert(4, " role=\"img\" aria-label=\"" + escape_html(plot.title) + "\"");
    return "<figure class=\"card\"><figcaption><h3>" + escape_html(plot.title) + "</h3></figcaption>\n" +
           svg + (plot.curves.empty() ? "" : legend(plot_curves(table, plot))) + "</figure>\n";
}

static const Table& table_of(const ReportPart& part, const Plot& plot) {
    return *std::find_if(part.tables.begin(), part.tables.end(),
                         [&](const Table& t) { return t.name == plot.table; });
}

// All plots of a program. After the first failure, which `problem` describes, no more are attempted.
static std::string plots_html(const ReportPart& part, std::vector<std::string>& drawn, std::string& problem) {
    std::string html;
    for (size_t i = 0; i < part.plots.size(); i++) {
        const Table& table = table_of(part, part.plots[i]);
        if (!problem.empty() || plot_curves(table, part.plots[i]).empty()) continue;
        try {
            html += plot_figure(table, part.plots[i], part.program + format_string("-%zu-", i));
            drawn.push_back(table.name);
        } catch (const Error& error) {
            problem = error.what();
        }
    }
    return html.empty() ? "" : "<div class=\"plots\">\n" + html + "</div>\n";
}

static std::string seconds_text(double seconds) {
    if (seconds < 99.5) return format_string("%.3g s", seconds);
    return format_string("%d min %d s", int(std::lround(seconds)) / 60, int(std::lround(seconds)) % 60);
}

// The measurements skipped for lack of time.
static std::string left_out_list(const ReportPart& part) {
    if (part.left_out.empty()) return "";
    std::string html =
        "<details class=\"card\" open=\"open\"><summary>Skipped for lack of time " +
        tag("span", format_string("%zu measurements", part.left_out.size()), "class=\"quiet\"") +
        "</summary>\n<ul>";
    for (const std::string& what : part.left_out) html += tag("li", what);
    return html + "</ul>\n</details>\n";
}

static std::string part_section(const ReportPart& part, std::string& problem) {
    std::string html =
        "<section id=\"" + escape_html(part.program) + "\">\n" + tag("h2", title_of(part)) + "\n";
    if (!part.what.empty()) html += tag("p", part.what) + "\n";
    html += tag("pre", part.command);
    html += tag("p", (part.error.empty() ? "took " : "failed after ") + seconds_text(part.seconds),
                "class=\"more\"") +
            "\n";
    if (!part.error.empty()) html += tag("div", part.error, "class=\"bad\" role=\"alert\"") + "\n";
    std::vector<std::string> drawn;
    html += plots_html(part, drawn, problem);
    if (!part.tables.empty()) html += "<div class=\"tables\">\n";
    for (const Table& table : part.tables)
        html += table_card(table, std::find(drawn.begin(), drawn.end(), table.name) != drawn.end());
    if (!part.tables.empty()) html += "</div>\n";
    return html + left_out_list(part) + "</section>\n";
}

// --- the machine ---

static std::string fact_text(const std::string& name, const Cell& value) {
    if (value.is_null()) return "none";
    if (value.is_text()) return value.text();
    if (name.ends_with("bytes")) {
        const double bytes = value.number();
        if (bytes >= 1 << 30) return format_string("%.1f GiB", bytes / (1 << 30));
        return format_string("%.0f KiB", bytes / 1024);
    }
    return value.is_integer() ? std::to_string(value.integer()) : format_string("%g", value.number());
}

// "memory_bytes" becomes "memory", "api_version" "api version".
static std::string fact_name(std::string name) {
    if (name.ends_with("_bytes")) name.resize(name.size() - 6);
    std::replace(name.begin(), name.end(), '_', ' ');
    return name;
}

static std::string facts_html(const std::vector<Fact>& facts) {
    std::string html = "<dl class=\"facts card\">\n";
    for (const auto& [name, value] : facts)
        html += "<div>" + tag("dt", fact_name(name)) + tag("dd", fact_text(name, value)) + "</div>\n";
    return html + "</dl>\n";
}

static std::string machine_section(const Report& report) {
    const auto part = std::find_if(report.parts.begin(), report.parts.end(),
                                   [](const ReportPart& p) { return p.device.has_value(); });
    if (part == report.parts.end()) return "";
    std::string html = "<section id=\"machine\">\n<h2>Device and driver</h2>\n";
    html += part->device->gpu ? facts_html(*part->device->gpu) : "<p>No GPU was used.</p>\n";
    return html + "<section>\n<h2>Processor and system</h2>\n" + facts_html(part->device->host) +
           "</section>\n</section>\n";
}

// --- the page ---

static std::string heading(const Report& report) {
    const std::string device = device_name(report);
    std::string line = report.date;
    if (report.quick)
        line += (line.empty() ? "" : " · ") + std::string("quick: fewer and smaller measurements");
    for (const ReportPart& part : report.parts) {
        if (!part.device) continue;
        if (part.device->gpu)
            line += (line.empty() ? "" : " · ") + fact_text("", find_fact(*part.device->gpu, "driver"));
        break;
    }
    std::string html = "<header>\n<p class=\"kicker\">Device report</p>\n" +
                       tag("h1", device.empty() ? "No device" : device) + "\n" +
                       tag("p", line, "class=\"quiet\"") + "\n<nav>";
    for (const ReportPart& part : report.parts)
        html += tag("a", title_of(part), "href=\"#" + escape_html(part.program) + "\"");
    if (!device.empty()) html += "<a href=\"#machine\">Device and driver</a>";
    return html + "</nav>\n</header>\n";
}

std::string report_page(const Report& report, std::string& problem) {
    std::string summary, failures, sections;
    for (const ReportPart& part : report.parts) {
        for (const Table& table : part.tables)
            if (&table == &part.tables[0] || is_summary(table)) summary += highlights_card(part, table);
        if (!part.error.empty())
            failures += tag("div", title_of(part) + " failed: " + part.error, "class=\"bad\"") + "\n";
        sections += part_section(part, problem);
    }
    if (!problem.empty())
        failures +=
            tag("div",
                "Plots are missing: " + problem +
                    ". Install the package gnuplot-nox, then run build/report --page with the JSON file.",
                "class=\"bad\"") +
            "\n";
    if (!summary.empty()) summary = "<div class=\"summary\">\n" + summary + "</div>\n";
    const std::string title =
        "Device report" + (device_name(report).empty() ? "" : ": " + device_name(report));
    return "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n<meta "
           "charset=\"utf-8\"/>\n"
           "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n" +
           tag("title", title) + "\n<style>" + page_style + "</style>\n</head>\n<body>\n<main>\n" +
           heading(report) + failures + summary + sections + machine_section(report) +
           (report.command.empty() ? "" : tag("p", "Written by " + report.command, "class=\"more\"") + "\n") +
           "</main>\n</body>\n</html>\n";
}
