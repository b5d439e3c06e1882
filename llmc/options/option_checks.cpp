#include "llmc/options/option_checks.h"

#include <numeric>
#include <regex>
#include <utility>

#include "llmc/base/os.h"

void check_flags(const CLI::App& app, const std::vector<std::string>& arguments,
                 const std::vector<std::string>& values) {
    for (const std::string& argument : arguments) {
        const size_t equals = argument.find('=');
        if (!argument.starts_with("--") || equals == argument.npos) continue;
        const std::string name = argument.substr(0, equals), value = argument.substr(equals + 1);
        const CLI::Option* option = app.get_option_no_throw(name);
        const bool is_flag = option && option->get_items_expected_max() == 0;
        if (is_flag && std::find(values.begin(), values.end(), value) == values.end())
            fail("%s takes no value: leave out '=%s'", name.c_str(), value.c_str());
    }
    for (const CLI::App* subcommand : app.get_subcommands([](const CLI::App*) { return true; }))
        check_flags(*subcommand, arguments, values);
}

CLI::Validator one_of(const std::vector<std::string>& words) {
    std::string sentence = " is not ", set = "{";
    for (size_t i = 0; i < words.size(); i++) {
        sentence += (i == 0 ? "" : i + 1 < words.size() ? ", " : " or ") + words[i];
        set += (i == 0 ? "" : ",") + words[i];
    }
    return CLI::Validator(
        [=](std::string& text) {
            return std::find(words.begin(), words.end(), text) == words.end() ? text + sentence : "";
        },
        set + "}");
}

uint64_t parse_size(const std::string& text) {
    static const std::regex pattern("([0-9]+([.][0-9]+)?)([KMGT])(i?B)?", std::regex::icase);
    std::smatch part;
    if (text == "all") return 0;
    if (text.size() > 32 || !std::regex_match(text, part, pattern))
        fail("%s is not a size such as 8G or 900M, nor all", text.c_str());
    const std::string units = "KMGT";
    const size_t unit = units.find(char(toupper(part[3].str()[0])));
    const double bytes = strtod(part[1].str().c_str(), nullptr) * double(uint64_t(1) << 10 * (unit + 1));
    if (bytes < 1 << 20 || bytes > double(uint64_t(1) << 50))
        fail("%s is not a size from 1M to 1024T", text.c_str());
    return uint64_t(bytes);
}

CLI::Validator size_check() {
    return CLI::Validator(
        [](std::string& text) {
            try {
                parse_size(text);
                return std::string();
            } catch (const Error& error) {
                return std::string(error.what());
            }
        },
        "a size such as 8G, or all");
}

CLI::Validator home_path() {
    return CLI::Validator(
        [](std::string& path) {
            const std::string home = home_folder();
            if (path == "~" || path.starts_with("~/")) {
                if (home.empty()) return path + ": HOME is not set";
                path.replace(0, 1, home);
            }
            return std::string();
        },
        "");
}

// Insertions, deletions and replacements that turn one word into the other.
static size_t edit_distance(const std::string& a, const std::string& b) {
    std::vector<size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), 0);
    for (size_t i = 1; i <= a.size(); i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b.size(); j++) {
            const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row.back();
}

// What other trainers call an option.
static const std::pair<const char*, std::vector<std::string>> usual_names[] = {
    {"learning-rate", {"lr"}},
    {"lr-scheduler", {"lr-schedule", "schedule", "lr-decay"}},
    {"warmup-steps", {"warmup"}},
    {"final-lr-fraction", {"min-lr"}},
    {"max-steps", {"steps", "max-iters", "iterations", "num-steps", "iters"}},
    {"epochs", {"num-epochs", "num-train-epochs"}},
    {"batch-size", {"bs", "batch", "micro-batch"}},
    {"sequence-length", {"block-size", "context", "seq-len", "ctx", "max-length", "n-ctx"}},
    {"total-batch-size", {"grad-accum", "gradient-accumulation-steps"}},
    {"weight-decay", {"wd"}},
    {"grad-clip", {"clip"}},
    {"precision", {"dtype", "fp16", "bf16", "amp"}},
    {"device", {"gpu"}},
    {"model",
     {"layers", "n-layer", "n-head", "n-embd", "init-from", "checkpoint", "model-name", "model-path",
      "model-name-or-path"}},
    {"train-data", {"train", "data", "train-file"}},
    {"val-data", {"val", "validation-file"}},
    {"val-fraction", {"val-split"}},
    {"output", {"out", "out-dir", "output-dir"}},
    {"out", {"output", "out-dir", "output-dir"}},
    {"checkpoint-every", {"save-every", "save-steps", "save-interval"}},
    {"resume", {"resume-from", "resume-from-checkpoint"}},
    {"log-every", {"log-interval", "logging-steps"}},
    {"val-every", {"val-interval", "eval-steps", "eval-interval", "eval-every"}},
    {"val-batches", {"eval-iters"}},
    {"patience", {"early-stopping"}},
    {"threads", {"num-threads"}},
    {"tokens", {"max-new-tokens", "max-tokens", "length"}},
    {"samples", {"num-samples", "num-return-sequences"}},
    {"repetition-penalty", {"repeat-penalty"}},
    {"shard-tokens", {"shard-size"}},
    {"field", {"text-field", "text-column", "column", "key"}},
};

std::string nearest_option(const CLI::App& app, const std::string& name) {
    const std::string word = name.substr(std::min(name.find_first_not_of('-'), name.size()));
    std::string usual = word;
    std::replace(usual.begin(), usual.end(), '_', '-');
    for (const auto& [ours, theirs] : usual_names)
        if (std::count(theirs.begin(), theirs.end(), usual) &&
            app.get_option_no_throw("--" + std::string(ours)))
            return " (did you mean --" + std::string(ours) + "?)";
    if (app.get_option_no_throw("--" + usual)) return " (did you mean --" + usual + "?)";
    std::string nearest;
    const size_t longest = 64;  // of a name that may be an option's
    if (word.size() > longest) return "";
    size_t least = word.size() < 4 ? 2 : std::max<size_t>(2, word.size() / 3) + 1;
    for (const CLI::Option* option : app.get_options())
        for (const std::string& known : option->get_lnames()) {
            const bool begins_with_it = word.size() > 1 && known.starts_with(word);
            const size_t distance = begins_with_it ? 1 : edit_distance(word, known);
            if (distance >= least || distance >= known.size()) continue;
            least = distance;
            nearest = known;
        }
    return nearest.empty() ? "" : " (did you mean --" + nearest + "?)";
}

// CLI11's "--export: 2 required hf DIR missing" as a sentence
static std::string missing_value(const std::string& text) {
    static const std::regex pattern("(.*): ([0-9]+) required (.*) missing");
    std::smatch part;
    if (!std::regex_match(text, part, pattern)) return text;
    return part[1].str() + (part[2] == "1" ? " needs a value" : " needs " + part[2].str() + " values: ") +
           (part[2] == "1" ? "" : part[3].str());
}

std::string explain(const CLI::App& app, const CLI::ParseError& error) {
    // required options are checked first, but an unknown one is the likelier mistake
    const bool may_be_unknown =
        dynamic_cast<const CLI::ExtrasError*>(&error) || dynamic_cast<const CLI::RequiredError*>(&error);
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&error)) return missing_value(error.what());
    const std::string could_not = "Could not convert: ", what = error.what();
    if (what.starts_with(could_not)) return "cannot use " + what.substr(could_not.size());
    if (!may_be_unknown) return what;
    const std::vector<std::string> rest = app.remaining(true);
    for (const std::string& word : rest)
        if (word.size() > 1 && word[0] == '-' && !isdigit(static_cast<unsigned char>(word[1]))) {
            const std::string name = word.substr(0, word.find('='));
            return "unknown option " + name + nearest_option(app, name);
        }
    if (!rest.empty() && dynamic_cast<const CLI::ExtrasError*>(&error))
        return "unexpected argument '" + rest.front() + "'";
    return error.what();
}
