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
#include "llmc/text/tokenizer_info.h"
#include "llmc/options/option_lines.h"
#include "llmc/options/train_options.h"

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

// --- drawing ---

static const char* const training_blue = "#0072B2";
static const char* const validation_red = "#D55E00";

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

// The step with the lowest validation loss; null: there was no validation.
static const std::pair<double, double>* best_of(const RunSeries& run) {
    const auto best = std::min_element(run.validation.begin(), run.validation.end(),
                                       [](auto& a, auto& b) { return a.second < b.second; });
    return best == run.validation.end() ? nullptr : &*best;
}

static PlotRing ring_of_best(const std::pair<double, double>& best, PlotOver over) {
    return {.text = over == PlotOver::steps ? format_string("best %.4g at step %.0f", best.second, best.first)
                                            : format_string("best %.4g", best.second),
            .x = best.first,
            .y = best.second,
            .colour = validation_red};
}

// One run: training pale and smoothed, validation above it in another colour, the best step marked.
static void add_losses_of_one(PlotPanel& panel, const RunSeries& run, PlotOver over) {
    panel.curves = {
        {"", run.training, {.colour = training_blue, .width = 1, .opacity = 0.3}},
        {"training", smoothed(run.training), {.colour = training_blue}},
        {"validation", run.validation, {.colour = validation_red, .dots = true}},
    };
    if (const auto* best = best_of(run)) panel.rings = {ring_of_best(*best, over)};
}

// Several runs: a line style for each, training thin, validation with dots.
static void add_losses_of_several(PlotPanel& panel, const std::vector<RunSeries>& runs) {
    for (size_t i = 0; i < runs.size(); i++) {
        LineStyle thin = line_style(i);
        thin.width = 1, thin.opacity = 0.6;
        panel.curves.push_back({"", smoothed(runs[i].training), thin});
    }
    for (size_t i = 0; i < runs.size(); i++) {
        LineStyle dotted = line_style(i);
        dotted.dots = true;
        panel.curves.push_back({runs[i].name, runs[i].validation, dotted});
    }
}

static PlotPanel loss_panel(const std::vector<RunSeries>& runs, std::optional<double> floor, PlotOver over) {
    PlotPanel panel = {.y = {.title = "loss (nats per token)", .log = true}};
    if (floor) panel.levels = {{"corpus entropy", *floor, {.dashes = "6 4"}}};
    runs.size() == 1 ? add_losses_of_one(panel, runs[0], over) : add_losses_of_several(panel, runs);
    return panel;
}

static PlotPanel small_panel(const std::vector<RunSeries>& runs, Series RunSeries::*series,
                             const std::string& title) {
    PlotPanel panel = {.y = {.title = title, .log = series == &RunSeries::norm}, .height = 72};
    for (size_t i = 0; i < runs.size(); i++) {
        LineStyle style = line_style(i);
        style.width = 1.5;
        panel.curves.push_back({"", smoothed(runs[i].*series), style});
        if (runs.size() > 1) continue;
        style.width = 1, style.opacity = 0.3;
        panel.curves.push_back({"", runs[i].*series, style});
    }
    return panel;
}

static const char* name_of(PlotOver over) {
    return over == PlotOver::steps ? "step" : over == PlotOver::tokens ? "tokens" : "seconds";
}

std::string draw_runs(const std::vector<RunSeries>& runs, std::optional<double> floor, PlotOver over) {
    Picture picture = {.description = "Loss of a run of vulkan-gpt2", .x = {.title = name_of(over)}};
    picture.panels = {loss_panel(runs, floor, over), small_panel(runs, &RunSeries::rate, "learning rate"),
                      small_panel(runs, &RunSeries::norm, "gradient norm"),
                      small_panel(runs, &RunSeries::speed, "tokens per second")};
    return picture_file(picture);
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
