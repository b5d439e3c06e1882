#include "llmc/run/loss_plot.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/lines.h"
#include "llmc/base/output.h"
#include "llmc/base/paths.h"
#include "llmc/data/sidecar.h"
#include "llmc/options/option_files.h"

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

static void add_validation(RunSeries& run, const std::optional<double>& at, const std::string& loss,
                           const ValidationRow& row) {
    add(run.validation, at, loss);
    if (run.validations.size() < run.validation.size()) run.validations.push_back(row);
}

static void read_metrics_line(RunSeries& run, const std::string& line, PlotOver over) {
    std::vector<std::string> fields;
    std::istringstream text(line);
    for (std::string field; std::getline(text, field, ',');) fields.push_back(field);
    fields.resize(std::max<size_t>(fields.size(), 11));
    const auto at = number(fields[over == PlotOver::steps ? 0 : over == PlotOver::seconds ? 8 : 9]);
    add(run.training, at, fields[1]);
    add(run.rate, at, fields[2]);
    add(run.norm, at, fields[3]);
    add(run.speed, at, fields[4]);
    add_validation(
        run, at, fields[6],
        {number(fields[0]).value_or(NAN), number(fields[8]).value_or(NAN), number(fields[10]).value_or(NAN)});
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
        if (name == "tel") add_validation(run, step, value, {.step = step.value_or(NAN)});
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
    const std::filesystem::path path = std::filesystem::path(folder) / "",
                                given = normal_path(path).parent_path();
    const std::string name = given.filename().generic_string();
    if (!name.empty() && name != "." && name != "..") return given;
    return absolute_path(path).parent_path();
}

// The last names of a path, as many as there are, as they are printed.
static std::string path_end(const std::filesystem::path& path, size_t names) {
    const std::filesystem::path inside = path.relative_path();
    const size_t all = size_t(std::distance(inside.begin(), inside.end()));
    std::filesystem::path end;
    for (auto name = std::next(inside.begin(), ptrdiff_t(all - std::min(names, all))); name != inside.end();
         ++name)
        end /= *name;
    return printable(end.generic_string());
}

std::vector<std::string> distinct_names(const std::vector<std::string>& folders) {
    std::vector<std::filesystem::path> paths;
    for (const std::string& folder : folders) paths.push_back(named_folder(folder));
    std::vector<std::string> names;
    for (size_t i = 0; i < paths.size(); i++) {
        const auto is_alone = [&](size_t length) {
            for (size_t j = 0; j < paths.size(); j++)
                if (j != i && path_end(paths[j], length) == path_end(paths[i], length)) return false;
            return true;
        };
        size_t length = 1;
        while (!is_alone(length) && path_end(paths[i], length) != path_end(paths[i], length + 1)) length++;
        const std::string end = path_end(paths[i], length);
        const std::string with_root = printable(generic_text(paths[i]));
        names.push_back(end.empty() || !is_alone(length) ? with_root : end);
    }
    std::vector<std::string> distinct = names;
    for (size_t i = 0; i < names.size(); i++)  // of a folder that is named twice
        for (size_t n = i + 1; std::ranges::count(names, names[i]) > 1; n++) {
            distinct[i] = names[i] + format_string(" (%zu)", n);
            if (std::ranges::count(distinct, distinct[i]) == 1) break;
        }
    return distinct;
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

struct BestValidation {
    double at, loss;  // on the axis
    ValidationRow row;
};

// The validation with the lowest loss; none: there was no validation.
static std::optional<BestValidation> best_of(const RunSeries& run) {
    const auto best = std::min_element(run.validation.begin(), run.validation.end(),
                                       [](auto& a, auto& b) { return a.second < b.second; });
    if (best == run.validation.end()) return std::nullopt;
    const size_t i = size_t(best - run.validation.begin());
    return BestValidation{best->first, best->second,
                          i < run.validations.size() ? run.validations[i] : ValidationRow()};
}

// Bits per byte of a loss of one nat per token, by the last validation; 0: unknown.
static double bits_of_nat(const RunSeries& run) {
    double factor = 0;
    for (size_t i = 0; i < std::min(run.validation.size(), run.validations.size()); i++)
        if (run.validation[i].second > 0 && run.validations[i].bits_per_byte > 0)
            factor = run.validations[i].bits_per_byte / run.validation[i].second;
    return factor;
}

static PlotRing ring_of_best(const BestValidation& best, PlotOver over) {
    std::string text = format_string("best %.4g", best.loss);
    if (over == PlotOver::steps) text += format_string(" at step %.0f", best.at);
    if (best.row.bits_per_byte > 0) text += format_string(" (%.4g bits per byte)", best.row.bits_per_byte);
    return {.text = text, .x = best.at, .y = best.loss, .colour = validation_red};
}

// One run: training pale and smoothed, validation above it in another colour, the best step marked.
static void add_losses_of_one(PlotPanel& panel, const RunSeries& run, PlotOver over) {
    panel.curves = {
        {"", run.training, {.colour = training_blue, .width = 1, .opacity = 0.3}},
        {"training", smoothed(run.training), {.colour = training_blue}},
        {"validation", run.validation, {.colour = validation_red, .dots = true}},
    };
    if (const auto best = best_of(run)) panel.rings = {ring_of_best(*best, over)};
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

// How several runs are compared: a factor for each run's losses.
static std::vector<double> factors_of(const std::vector<RunSeries>& runs) {
    std::vector<double> factors;
    for (const RunSeries& run : runs) factors.push_back(bits_of_nat(run));
    const auto [least, most] = std::minmax_element(factors.begin(), factors.end());
    const bool are_alike = *most <= *least * (1 + 1e-5);
    if (are_alike || *least == 0) return std::vector<double>(runs.size(), 1);
    return factors;
}

static PlotPanel loss_panel(std::vector<RunSeries> runs, std::optional<double> floor, PlotOver over) {
    PlotPanel panel = {.y = {.title = "loss (nats per token)", .log = true}};
    const std::vector<double> factors = factors_of(runs);
    const double first = bits_of_nat(runs[0]);
    const bool in_bits = factors[0] != 1;
    if (in_bits) {
        panel.y.title = "loss (bits per byte)";
        for (size_t i = 0; i < runs.size(); i++)
            for (Series* series : {&runs[i].training, &runs[i].validation})
                for (auto& [at, value] : *series) value *= factors[i];
    } else if (std::all_of(runs.begin(), runs.end(), bits_of_nat)) {
        panel.right_title = "bits per byte";
        panel.right_factor = first;
    }
    if (floor) panel.levels = {{"corpus entropy", *floor * factors[0], {.dashes = "6 4"}}};
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

static std::string cell(const char* format, double value) {
    return std::isnan(value) ? "-" : format_string(std::fabs(value) < 1e9 ? format : "%.3g", value);
}

static PlotTable table_of_best(const std::vector<RunSeries>& runs) {
    PlotTable table = {.columns = {"run", "best loss", "bits per byte", "step", "seconds"}};
    for (size_t i = 0; i < runs.size(); i++) {
        const BestValidation best = best_of(runs[i]).value_or(BestValidation{NAN, NAN, {}});
        table.rows.push_back({runs[i].name, cell("%.4f", best.loss), cell("%.4f", best.row.bits_per_byte),
                              cell("%.0f", best.row.step), cell("%.1f", best.row.seconds)});
        table.styles.push_back(line_style(i));
    }
    return table;
}

std::string draw_runs(const std::vector<RunSeries>& runs, std::optional<double> floor, PlotOver over) {
    Picture picture = {.description = "Loss of a run of vulkan-gpt2", .x = {.title = name_of(over)}};
    picture.panels = {loss_panel(runs, floor, over), small_panel(runs, &RunSeries::rate, "learning rate"),
                      small_panel(runs, &RunSeries::norm, "gradient norm"),
                      small_panel(runs, &RunSeries::speed, "tokens per second")};
    if (runs.size() > 1) picture.table = table_of_best(runs);
    return picture_file(picture);
}

// --- the file ---

std::optional<double> corpus_entropy(const std::string& folder) {
    const std::vector<std::string> data = option_of_run(folder, "val-data");
    if (data.size() != 1) return std::nullopt;
    for (const std::string& shard : shard_paths(data[0])) {
        const std::string numbers = sidecar_of(shard);
        if (!file_exists(numbers)) continue;
        const json nats = read_json_object(numbers).value("val_nats_per_token", json());
        if (nats.is_number() && nats > 1e-6 && nats < 1e3)  // the logarithmic axis has a place for it
            return nats.get<double>();
    }
    return std::nullopt;
}

static bool is_plot(const std::string& path) {
    return begins_around(path, "<title>Loss of a run of vulkan-gpt2</title>");
}

static size_t count_characters(const std::string& text) {
    return size_t(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

// The first column is aligned on the left, the others on the right.
static void print_table(const PlotTable& table) {
    std::vector<std::vector<std::string>> rows = {table.columns};
    rows.insert(rows.end(), table.rows.begin(), table.rows.end());
    std::vector<size_t> widths(table.columns.size());
    for (auto& row : rows)
        for (size_t i = 0; i < row.size(); i++) {
            row[i] = printable(row[i]);
            widths[i] = std::max(widths[i], count_characters(row[i]));
        }
    for (const auto& row : rows) {
        std::string line;
        for (size_t i = 0; i < row.size(); i++) {
            const std::string space(widths[i] - count_characters(row[i]), ' ');
            line += i == 0 ? row[i] + space : "  " + space + row[i];
        }
        print_line(stdout, "%s", line.c_str());
    }
}

// Losses per token of unlike tokenizers do not compare.
static void warn_of_unknown_bits(const std::vector<RunSeries>& runs) {
    const auto knows = [](const RunSeries& run) { return bits_of_nat(run) > 0; };
    const auto unknown = std::find_if_not(runs.begin(), runs.end(), knows);
    if (unknown != runs.end() && std::any_of(runs.begin(), runs.end(), knows))
        print_line(stdout,
                   "note: the bits per byte of %s are unknown; losses per token compare only if the "
                   "tokenizers are the same",
                   printable(unknown->name).c_str());
}

void plot_runs(const std::vector<std::string>& named, PlotOver over) {
    std::vector<std::string> folders = expand_patterns(named);
    // runs/* also matches the picture of runs that was drawn before
    std::erase_if(folders, [](const std::string& path) { return is_regular(path) && is_plot(path); });
    if (folders.empty()) fail("--plot: name the folders of runs; this program has drawn what is named");
    std::vector<RunSeries> runs;
    std::vector<std::string> logs;
    const std::vector<std::string> names = distinct_names(folders);
    for (const std::string& folder : folders) {
        if (is_regular(folder)) fail("--plot %s: it is a file: name the folders of runs", folder.c_str());
        runs.push_back(read_series(folder, over));
        runs.back().name = names[runs.size() - 1];
        logs.insert(logs.end(), {folder + "/metrics.csv", folder + "/main.log"});
    }
    const auto first = named_folder(folders[0]);
    const std::string axis = over == PlotOver::steps ? "" : std::string("_over_") + name_of(over);
    const auto path = folders.size() == 1 ? first / "loss" : first.parent_path() / "comparison";
    const std::string picture = generic_text(path) + axis + ".svg";
    check_output(picture, logs, is_plot, Target::file);
    const std::optional<double> floor = corpus_entropy(folders[0]);
    write_whole_file(picture, {draw_runs(runs, floor, over)});
    if (runs.size() > 1) print_table(table_of_best(runs)), warn_of_unknown_bits(runs);
    if (const auto best = best_of(runs[0]); floor && runs.size() == 1 && best)
        printf("validation loss %.4f, corpus entropy %.4f: %.4f nats per token above it\n", best->loss,
               *floor, best->loss - *floor);
    print_line(stdout, "plot: %s", picture.c_str());
}
