// The plot of one or several runs, as an SVG picture: loss, learning rate, gradient norm and speed over the
// steps.
#pragma once
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "llmc/options/train_options.h"
#include "llmc/run/svg_plot.h"

// What a log says of a validation beside its loss; NaN: nothing.
struct ValidationRow {
    double step = NAN, seconds = NAN, bits_per_byte = NAN;
};

// Values by step, tokens or seconds, in the order of the log.
struct RunSeries {
    std::string name;  // in the legend, if there are several runs
    Series training, validation, rate, norm, speed;
    std::vector<ValidationRow> validations = {};  // those of the points of `validation`
};

// The values in the text of a metrics.csv, or of a main.log of llm.c, which has no speed. Damaged lines and
// values that are not finite are skipped. main.log has steps only.
RunSeries parse_series(const std::string& log, bool is_metrics, PlotOver over = PlotOver::steps);

// The same from a run's folder, without a name. Error if there are no losses.
RunSeries read_series(const std::string& folder, PlotOver over = PlotOver::steps);

// The shortest ends of the folders' paths that differ from each other: "seed1/run" and "seed2/run".
std::vector<std::string> distinct_names(const std::vector<std::string>& folders);

// The picture. floor: a loss below which no model gets, drawn as a line. Several runs, of which all know
// their bits per byte and some have other tokenizers than others, are compared in bits per byte.
std::string draw_runs(const std::vector<RunSeries>& runs, std::optional<double> floor,
                      PlotOver over = PlotOver::steps);

// The entropy of the validation data of a run, in nats per token, if the data is make_corpus's.
std::optional<double> corpus_entropy(const std::string& folder);

// Draws loss.svg in the folder of the run, or, of several runs, comparison.svg beside the first folder (over
// tokens: loss_over_tokens.svg, ...), and prints its name, and the best losses of several runs. Error if a
// folder has no losses, or if the file there is none of this program's.
void plot_runs(const std::vector<std::string>& named, PlotOver over = PlotOver::steps);
