#include "llmc/options/resumed_options.h"

#include <algorithm>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/lines.h"
#include "llmc/base/paths.h"
#include "llmc/data/weighted_path.h"
#include "llmc/files/checkpoint.h"
#include "llmc/options/option_files.h"
#include "llmc/options/train_options.h"

// As it would be given, such as "--include '*.md'"; "no --include" for the default.
static std::string shown_or_none(const Option& row) {
    Options defaults;
    const bool is_default = row.texts() == option_table(defaults).find(row.name)->texts();
    return is_default ? "no " + row.dashed() : row.shown();
}

// The texts as whole paths, for comparisons and for messages.
static std::string whole_paths(const std::vector<std::string>& texts) {
    std::vector<std::string> whole;
    for (const std::string& text : texts) whole.push_back(generic_text(whole_path(text)));
    return joined(whole, " --text ");
}

// Whether two texts of an option mean the same: a path has many spellings, and a weight has several.
static bool mean_the_same(const Option& row, const std::string& now, const std::string& was) {
    if (now == was || row.path == PathKind::none) return now == was;
    const auto split = [&](const std::string& text) {
        return row.has_weights ? weighted_path(text) : WeightedPath{text};
    };
    const WeightedPath a = split(now), b = split(was);
    return a.weight == b.weight && (whole_path(a.path) == whole_path(b.path) || is_same_file(a.path, b.path));
}

// Whether an option is given, with other texts than a run has.
static bool is_changed(OptionTable& table, OptionTable& before, const std::string& name) {
    const Option& row = *table.find(name);
    const std::vector<std::string> now = row.texts(), was = before.find(name)->texts();
    const auto same = [&](const std::string& a, const std::string& b) { return mean_the_same(row, a, b); };
    return row.source >= Source::config && !std::ranges::equal(now, was, same);
}

// A resumed run continues its own model, with the tokens that are in its folder, whatever is given: they must
// be of that model and text.
static void refuse_other_inputs(OptionTable& table, const Options& o, const SavedOptions& saved) {
    const char* what_to_do = "leave it out, or start a new run in another folder";
    Options before;
    OptionTable table_before = option_table(before);
    read_options(table_before, saved.text, saved.path, Source::run);
    if (is_changed(table, table_before, "text"))
        fail("--text %s: the run in %s trains on %s; %s", joined(o.text, " --text ").c_str(),
             o.output.c_str(), before.text.empty() ? "no text" : whole_paths(before.text).c_str(),
             what_to_do);
    if (is_changed(table, table_before, "model") && !o.start_over)
        fail("-e %s: the run in %s began with -e %s and continues its own model; %s", o.model.c_str(),
             o.output.c_str(), before.model.c_str(), what_to_do);
    if (o.is_given(o.overfit) && o.overfit != before.overfit && !o.start_over)
        fail("-a %d: the run in %s has -a %d and continues with its data; %s", o.overfit, o.output.c_str(),
             before.overfit, what_to_do);
    if (!before.text.empty() && is_changed(table, table_before, "tokenizer"))
        fail("--tokenizer %s: the tokens of the run in %s were prepared with %s; %s", o.tokenizer.c_str(),
             o.output.c_str(),
             before.tokenizer.empty() ? "its model's own" : ("--tokenizer " + before.tokenizer).c_str(),
             what_to_do);
    for (const Option& row : table.rows)
        if (row.is_fixed && is_changed(table, table_before, row.name))
            fail("%s: the tokens of the run in %s were prepared with %s; %s", shown_or_none(row).c_str(),
                 o.output.c_str(), shown_or_none(*table_before.find(row.name)).c_str(), what_to_do);
}

// Error if a run is to start over that llm.c began, or without options: what it began with is not recorded.
static void refuse_unknown_start(const Options& o) {
    for (const int step : list_checkpoints(o.output))
        if (o.start_over && is_same_file(o.model, model_path(o.output, step)))
            fail("--start-over: it is not recorded which model the run in %s began with: name it with -e",
                 o.output.c_str());
}

void take_options_of_run(OptionTable& table, Options& o) {
    if (!o.resume || o.output.empty()) return;
    const std::string path = options_path(o.output);
    std::vector<SavedOptions> all;
    if (file_exists(path)) all.push_back({read_whole_file(path, 1 << 20), path});
    all.push_back(options_of_checkpoint(o.output));
    std::erase_if(all, [](const SavedOptions& saved) { return saved.path.empty(); });
    if (all.empty()) {  // llm.c saves none: the run continues its newest model
        const std::vector<int> steps = list_checkpoints(o.output);
        if (!steps.empty()) table.set(*table.find("model"), {model_path(o.output, steps[0])}, Source::run);
        refuse_unknown_start(o);
        return;
    }
    refuse_other_inputs(table, o, all[0]);
    Option& minutes = *table.find("minutes");  // they have chosen the run's steps when it began
    const std::vector<std::string> given = minutes.texts();
    const bool is_given = minutes.source == Source::command_line;
    if (is_given) minutes.source = Source::built_in;
    for (const SavedOptions& saved : all) read_options(table, saved.text, saved.path, Source::run);
    refuse_unknown_start(o);
    if (is_given && minutes.texts() != given)
        o.notes.push_back(
            o.start_over
                ? "--minutes has no effect: --start-over takes the run's options, and its "
                  "steps; without -y 1, --minutes chooses those of a new run"
                : "--minutes has no effect: it chooses the steps of a new run; -x makes this one longer");
    o.notes.push_back("options that are not given come from " + all[0].path);
}
