// Plots of runs: see loss_plot.h. The colours are those of Okabe and Ito, which colour-blind eyes tell apart.
#include "llmc/run/loss_plot.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/html.h"
#include "llmc/base/json.h"
#include "llmc/base/lines.h"
#include "llmc/base/output.h"
#include "llmc/data/sidecar.h"
#include "llmc/options/option_lines.h"
#include "llmc/options/train_options.h"
#include "llmc/text/tokenizer_info.h"

using nlohmann::json;

// --- the logs ---

// A number that can be drawn.
static std::optional<double> number(const std::string& text) {
    char* end = nullptr;
    const double value = strtod(text.c_str(), &end);
    if (text.empty() || *end || !(std::fabs(value) < 1e30)) return std::nullopt;
    return std::fabs(value) < 1e-30 ? 0 : value;  // a logarithmic axis has no room for smaller ones
}

static void add(Series& series, const std::optional<double>& at, const std::string& value) {
    if (const auto y = number(value); at && *at >= 0 && y) series.push_back({*at, *y});
}

static void read_metrics_line(RunSeries& run, const std::string& line, PlotOver over) {
    std::vector<std::string> fields;
    std::istringstream text(line);
    for (std::string field; std::getline(text, field, ',');) fields.push_back(field);
    fields.resize(std::max<size_t>(fields.size(), 10));
    const auto at = number(fields[over == PlotOver::steps ? 0 : over == PlotOver::seconds ? 8 : 9]);
    add(run.training, at, fields[1]);
    add(run.rate, at, fields[2]);
    add(run.norm, at, fields[3]);
    add(run.speed, at, fields[4]);
    add(run.validation, at, fields[6]);
}

// A line of llm.c's main.log, such as "s:20 trl:4.123456 lr:0.000300 norm:1.23".
static void read_log_line(RunSeries& run, const std::string& line) {
    std::optional<double> step;
    std::istringstream text(line);
    for (std::string word; text >> word;) {
        const size_t colon = std::min(word.find(':'), word.size() - 1);
        const std::string name = word.substr(0, colon), value = word.substr(colon + 1);
        if (name == "s") step = number(value);
        if (name == "trl") add(run.training, step, value);
        if (name == "tel") add(run.validation, step, value);
        if (name == "lr") add(run.rate, step, value);
        if (name == "norm") add(run.norm, step, value);
    }
}

RunSeries parse_series(const std::string& log, bool is_metrics, PlotOver over) {
    RunSeries run;
    for (const std::string& line : lines_of(log))
        is_metrics ? read_metrics_line(run, line, over) : read_log_line(run, line);
    return run;
}

// A folder as given; an absolute path if its name is not in what was given, as in "..".
static std::filesystem::path named_folder(const std::string& folder) {
    const std::filesystem::path given = (std::filesystem::path(folder) / "").lexically_normal().parent_path();
    const std::string name = given.filename().generic_string();
    if (!name.empty() && name != "." && name != "..") return given;
    return (std::filesystem::absolute(folder) / "").lexically_normal().parent_path();
}

RunSeries read_series(const std::string& folder, PlotOver over) {
    const std::string metrics = folder + "/metrics.csv", log = folder + "/main.log";
    const bool has_metrics = file_exists(metrics);
    if (!has_metrics && !file_exists(log)) {
        refuse_unreachable(log);
        fail("there is no metrics.csv or main.log in %s", folder.c_str());
    }
    if (!has_metrics && over != PlotOver::steps)
        fail("%s has no metrics.csv, and so only steps: leave out --plot-over", folder.c_str());
    RunSeries run = parse_series(read_whole_file(has_metrics ? metrics : log), has_metrics, over);
    run.name = named_folder(folder).filename().generic_string();
    if (run.training.empty() && run.validation.empty())
        fail("the logs in %s contain no losses", folder.c_str());
    return run;
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
};

static std::string tick_text(double value) {
    if (value >= 1e6) return format_string("%.3gM", value / 1e6);
    if (value >= 1e4) return format_string("%.3gk", value / 1e3);
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

// --- drawing ---

static const double page_width = 600, plot_left = 56, plot_right = 576;
static const char* const grey = "#666666";
static const char* const training_blue = "#0072B2";
static const char* const validation_red = "#D55E00";
static const char* const run_colours[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                          "#E69F00", "#56B4E9", "#000000"};

static std::string text_at(double x, double y, const std::string& attributes, const std::string& text) {
    return format_string("<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes.c_str()) +
           escape_html(printable(text)) + "</text>\n";
}

static std::string line_at(double x1, double y1, double x2, double y2, const std::string& attributes) {
    return format_string("<path d=\"M%.1f %.1fL%.1f %.1f\" %s/>\n", x1, y1, x2, y2, attributes.c_str());
}

// Mean over about a sixtieth of the points on both sides.
static Series smoothed(const Series& series) {
    std::vector<double> sums = {0};
    for (const auto& [step, value] : series) sums.push_back(sums.back() + value);
    const size_t half = series.size() / 120;
    Series means;
    for (size_t i = 0; i < series.size(); i++) {
        const size_t reach = std::min({half, i, series.size() - 1 - i}), first = i - reach,
                     end = i + reach + 1;
        means.push_back({series[i].first, (sums[end] - sums[first]) / double(end - first)});
    }
    return means;
}

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

static std::string curve(const Series& series, const Axis& x, const Axis& y, const std::string& attributes) {
    std::string path;
    for (const auto& [step, value] : thinned(series))
        if (!y.log || value > 0)
            path += format_string("%c%.1f %.1f", path.empty() ? 'M' : 'L', x.at(step), y.at(value));
    return path.empty() ? "" : "<path d=\"" + path + "\" " + attributes + "/>\n";
}

static std::string dots(const Series& series, const Axis& x, const Axis& y, const std::string& colour) {
    std::string all;
    for (const auto& [step, value] : series)
        if (!y.log || value > 0)
            all += format_string("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.2\" fill=\"%s\"/>\n", x.at(step),
                                 y.at(value), colour.c_str());
    return all;
}

// Range of the values of all series, with a little room. A linear axis begins at 0.
static Axis value_axis(const std::vector<const Series*>& all, bool log, double top, double bottom) {
    double low = INFINITY, high = -INFINITY;
    for (const Series* series : all)
        for (const auto& [step, value] : *series)
            if (!log || value > 0) low = std::min(low, value), high = std::max(high, value);
    if (low > high) low = high = 1;
    if (!log) return {false, 0, high > 0 ? 1.05 * high : 1, bottom, top};
    const double margin = std::max(1.03, std::pow(high / low, 0.04));
    return {true, low / margin, high * margin, bottom, top};
}

// Grid, ticks and title of a panel.
static std::string frame(const Axis& x, const Axis& y, const std::string& title, bool labels_steps) {
    const std::string grid = "stroke=\"#dddddd\"";
    std::string svg;
    for (double tick : linear_ticks(x, 70)) {
        svg += line_at(x.at(tick), y.start, x.at(tick), y.end, grid);
        if (labels_steps) svg += text_at(x.at(tick), y.start + 16, "text-anchor=\"middle\"", tick_text(tick));
    }
    for (double tick : y.log ? log_ticks(y, 17) : linear_ticks(y, 17)) {
        svg += line_at(x.start, y.at(tick), x.end, y.at(tick), grid);
        svg += text_at(x.start - 5, y.at(tick) + 4, "text-anchor=\"end\"", tick_text(tick));
    }
    svg += line_at(x.start, y.start, x.end, y.start, "stroke=\"#666666\"");
    svg += line_at(x.start, y.start, x.start, y.end, "stroke=\"#666666\"");
    return svg + text_at(x.start, y.end - 5, "font-weight=\"bold\"", title);
}

// The step with the lowest validation loss; null: there was no validation.
static const std::pair<double, double>* best_of(const RunSeries& run) {
    const auto best = std::min_element(run.validation.begin(), run.validation.end(),
                                       [](auto& a, auto& b) { return a.second < b.second; });
    return best == run.validation.end() ? nullptr : &*best;
}

// A ring around the best validation, with its loss and step above it, inside the picture.
static std::string mark_best(const RunSeries& run, const Axis& x, const Axis& y, PlotOver over) {
    const auto* best = best_of(run);
    if (!best || best->second <= 0) return "";  // 0 has no place on a logarithmic axis
    const double at = x.at(best->first), level = y.at(best->second);
    const char* anchor = at > 0.7 * plot_right ? "end" : at < 0.3 * plot_right ? "start" : "middle";
    return format_string(
               "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5.5\" fill=\"none\" stroke=\"%s\" "
               "stroke-width=\"2\"/>\n",
               at, level, validation_red) +
           text_at(at, level - 12,
                   format_string("text-anchor=\"%s\" font-weight=\"bold\" class=\"best\"", anchor),
                   over == PlotOver::steps
                       ? format_string("best %.4g at step %.0f", best->second, best->first)
                       : format_string("best %.4g", best->second));
}

// Entries of the legend from right to left, above the panel.
static std::string legend(const std::vector<std::pair<std::string, std::string>>& names_and_colours,
                          double y) {
    std::string svg;
    double x = page_width - 12;
    for (size_t i = names_and_colours.size(); i-- > 0;) {
        const auto& [name, colour] = names_and_colours[i];
        svg += text_at(x, y, "text-anchor=\"end\"", name);
        x -= 7.0 * double(name.size()) + 6;
        svg += line_at(x - 18, y - 4, x, y - 4, "stroke=\"" + colour + "\" stroke-width=\"3\"");
        x -= 32;
    }
    return svg;
}

static std::string stroke(const std::string& colour, double line_width, double opacity = 1) {
    return format_string("stroke=\"%s\" stroke-width=\"%g\" opacity=\"%g\"", colour.c_str(), line_width,
                         opacity);
}

// One run: training pale and smoothed, validation above it in another colour, the best step marked.
static std::string loss_of_one(const RunSeries& run, const Axis& x, const Axis& y, PlotOver over) {
    return curve(run.training, x, y, stroke(training_blue, 1, 0.3)) +
           curve(smoothed(run.training), x, y, stroke(training_blue, 2)) +
           curve(run.validation, x, y, stroke(validation_red, 2)) +
           dots(run.validation, x, y, validation_red) + mark_best(run, x, y, over);
}

static std::string colour_of(size_t run) { return run_colours[run % std::size(run_colours)]; }

// Several runs: a colour for each, training thin, validation with dots.
static std::string loss_of_several(const std::vector<RunSeries>& runs, const Axis& x, const Axis& y) {
    std::string svg;
    for (size_t i = 0; i < runs.size(); i++)
        svg += curve(smoothed(runs[i].training), x, y, stroke(colour_of(i), 1, 0.6));
    for (size_t i = 0; i < runs.size(); i++)
        svg += curve(runs[i].validation, x, y, stroke(colour_of(i), 2)) +
               dots(runs[i].validation, x, y, colour_of(i));
    return svg;
}

static std::string loss_panel(const std::vector<RunSeries>& runs, std::optional<double> floor, const Axis& x,
                              PlotOver over) {
    Series entropy;
    if (floor) entropy = {{x.low, *floor}, {x.high, *floor}};
    std::vector<const Series*> all = {&entropy};
    for (const RunSeries& run : runs) all.insert(all.end(), {&run.training, &run.validation});
    const Axis y = value_axis(all, true, 28, 290);
    std::string svg = frame(x, y, "loss (nats per token)", false);
    std::vector<std::pair<std::string, std::string>> names;
    for (size_t i = 0; i < runs.size() && runs.size() > 1; i++) names.push_back({runs[i].name, colour_of(i)});
    if (runs.size() == 1) names = {{"training", training_blue}, {"validation", validation_red}};
    if (floor) names.push_back({"corpus entropy", grey});
    svg += curve(entropy, x, y, stroke(grey, 2) + " stroke-dasharray=\"6 4\"");
    svg += runs.size() == 1 ? loss_of_one(runs[0], x, y, over) : loss_of_several(runs, x, y);
    return svg + legend(names, 20);
}

static std::string small_panel(const std::vector<RunSeries>& runs, Series RunSeries::*series, const Axis& x,
                               const std::string& title, double top) {
    std::vector<const Series*> all;
    for (const RunSeries& run : runs) all.push_back(&(run.*series));
    const bool log = series == &RunSeries::norm, is_last = series == &RunSeries::speed;
    const Axis y = value_axis(all, log, top, top + 72);
    std::string svg = frame(x, y, title, is_last);
    for (size_t i = 0; i < runs.size(); i++) {
        if (runs.size() == 1) svg += curve(*all[i], x, y, stroke(colour_of(i), 1, 0.3));
        svg += curve(smoothed(*all[i]), x, y, stroke(colour_of(i), 1.5));
    }
    return svg;
}

static const char* name_of(PlotOver over) {
    return over == PlotOver::steps ? "step" : over == PlotOver::tokens ? "tokens" : "seconds";
}

std::string draw_runs(const std::vector<RunSeries>& runs, std::optional<double> floor, PlotOver over) {
    double last = 1;
    for (const RunSeries& run : runs)
        for (const Series* series : {&run.training, &run.validation})
            for (const auto& [step, value] : *series) last = std::max(last, step);
    const Axis x = {false, 0, last, plot_left, plot_right};
    std::string svg =
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"600\" height=\"640\" viewBox=\"0 0 600 640\" "
        "font-family=\"sans-serif\" font-size=\"12.5\">\n<title>Loss of a run of vulkan-gpt2</title>\n"
        "<style>path{fill:none;stroke-linejoin:round}text{fill:#222222}"
        ".best{fill:#A34700;paint-order:stroke;stroke:#ffffff;stroke-width:4px}</style>\n"
        "<rect width=\"600\" height=\"640\" fill=\"#ffffff\"/>\n";
    svg += loss_panel(runs, floor, x, over);
    svg += small_panel(runs, &RunSeries::rate, x, "learning rate", 322);
    svg += small_panel(runs, &RunSeries::norm, x, "gradient norm", 424);
    svg += small_panel(runs, &RunSeries::speed, x, "tokens per second", 526);
    return svg + text_at((plot_left + plot_right) / 2, 634, "text-anchor=\"middle\"", name_of(over)) +
           "</svg>\n";
}

// --- the file ---

std::optional<double> corpus_entropy(const std::string& folder) {
    const std::string options = options_path(folder);
    if (!file_exists(options)) return std::nullopt;
    const std::string text = with_absolute_paths(read_whole_file(options, 1 << 20),
                                                 std::filesystem::absolute(folder).generic_string());
    for (const OptionLine& line : parse_option_lines(text, options)) {
        if (line.name != "val-data") continue;
        for (const std::string& shard : matching_paths(line.values[0])) {
            const std::string numbers = sidecar_of(shard);
            if (!file_exists(numbers)) continue;
            const json nats = read_json_object(numbers).value("val_nats_per_token", json());
            if (nats.is_number() && nats > 1e-6 && nats < 1e3)  // the logarithmic axis has a place for it
                return nats.get<double>();
        }
    }
    return std::nullopt;
}

static bool is_plot(const std::string& path) {
    return begins_around(path, "<title>Loss of a run of vulkan-gpt2</title>");
}

void plot_runs(const std::vector<std::string>& folders, PlotOver over) {
    std::vector<RunSeries> runs;
    std::vector<std::string> logs;
    for (const std::string& folder : folders) {
        runs.push_back(read_series(folder, over));
        logs.insert(logs.end(), {folder + "/metrics.csv", folder + "/main.log"});
    }
    const auto first = named_folder(folders[0]);
    const std::string axis = over == PlotOver::steps ? "" : std::string("_over_") + name_of(over);
    const auto path = folders.size() == 1 ? first / "loss" : first.parent_path() / "comparison";
    const std::string picture = path.generic_string() + axis + ".svg";
    check_output(picture, logs, is_plot, Target::file);
    const std::optional<double> floor = corpus_entropy(folders[0]);
    write_whole_file(picture, {draw_runs(runs, floor, over)});
    if (const auto* best = best_of(runs[0]); floor && runs.size() == 1 && best)
        printf("validation loss %.4f, corpus entropy %.4f: %.4f nats per token above it\n", best->second,
               *floor, best->second - *floor);
    print_line(stdout, "plot: %s", picture.c_str());
}
