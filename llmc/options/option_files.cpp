#include "llmc/options/option_files.h"

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/paths.h"
#include "llmc/base/system_files.h"
#include "llmc/base/toml.h"
#include "llmc/data/weighted_path.h"
#include "llmc/files/model_source.h"
#include "llmc/options/recipe.h"
#include "llmc/text/bpe_trainer.h"

namespace fs = std::filesystem;

// --- paths ---

// A model may also be a descriptor, a tokenizer "bytes" or "bpe:4096".
static bool is_path(const Option& option, const std::string& value) {
    if (value.empty() || option.path == PathKind::none) return false;
    if (option.path == PathKind::model) return looks_like_model_file(value);
    if (option.path == PathKind::text) return value != "stories";
    return option.path != PathKind::tokenizer || (value != "bytes" && !parse_bpe(value));
}

// The option's path in a folder, whose name is no pattern, whatever characters it has.
static fs::path path_in(const fs::path& folder, const Option& option, const std::string& value) {
    const fs::path path = joined_path(folder, value);
    if (option.path != PathKind::pattern || file_exists(generic_text(path))) return path;
    return joined_path(escaped_pattern(generic_text(folder)), value);
}

// The texts of an option, with absolute paths instead of those relative to a folder.
static std::vector<std::string> absolute_texts(const Option& option, std::vector<std::string> texts,
                                               const fs::path& folder) {
    for (std::string& text : texts)
        if (is_path(option, text)) text = generic_text(normal_path(path_in(folder, option, text)));
    return texts;
}

static bool is_descriptor(const std::string& model) {
    try {
        parse_descriptor(model);
        return true;
    } catch (const Error&) {
        return false;
    }
}

// The value of an option in a file of options. A relative path is relative to the file, or else to the
// current folder.
static std::string value_in_file(const Option& option, const std::string& value, const std::string& path) {
    const bool is_model = option.path == PathKind::model;
    if (!is_path(option, value) && !is_model) return value;
    const std::string in_folder = generic_text(path_in(fs::path(path).parent_path(), option, value));
    if (is_model) return !is_descriptor(value) && names_model_file(in_folder) ? in_folder : value;
    const auto is_there = [&](const std::string& text) {
        const std::string named = option.has_weights ? weighted_path(text).path : text;
        return option.path == PathKind::pattern ? !matching_paths(named).empty() : file_exists(named);
    };
    const bool is_of_run = value.starts_with(std::string(tokens_folder) + "/");  // and may be gone
    return is_there(in_folder) || (is_of_run && !is_there(value)) ? in_folder : value;
}

fs::path whole_path(const std::string& text) {
    if (text.empty() || text == "stories") return text;
    return absolute_path(fs::path(text) / "").parent_path();
}

// --- files ---

// The row of an option in a file. Error if a file cannot have it, or not with so many values.
static Option& row_of(OptionTable& table, const TomlEntry& entry) {
    Option* row = table.find(entry.name);
    if (!row) fail("unknown option '%s'%s", entry.name.c_str(), table.nearest(entry.name).c_str());
    if (!row->is_saved && !row->without_effect) fail("--%s is for the command line only", entry.name.c_str());
    if (entry.is_list && !row->is_list()) fail("--%s takes one value, not a list", entry.name.c_str());
    return *row;
}

void read_options(OptionTable& table, const std::string& text, const std::string& path, Source source) {
    for (const TomlEntry& entry : read_toml(text, path)) try {
            Option& row = row_of(table, entry);
            if (row.source >= source) continue;
            std::vector<std::string> values = entry.values;
            for (std::string& value : values) value = value_in_file(row, value, path);
            table.set(row, values, source);
        } catch (const Error& error) {
            const bool may_be_known = source == Source::run && std::string(error.what()).starts_with("--");
            fail("%s, line %d: %s%s", path.c_str(), entry.line, error.what(),
                 may_be_known ? "; correct it, or delete it and give all options" : "");
        }
}

std::string options_path(const std::string& output) { return output + "/options.toml"; }

// The tokens of a text are named relative to the run's folder, which may move.
static std::vector<std::string> saved_texts(const Options& o, const Option& row) {
    std::vector<std::string> texts = absolute_texts(row, row.texts(), fs::current_path());
    const fs::path tokens = whole_path(escaped_pattern(o.output) + "/" + tokens_folder);
    if (row.path != PathKind::pattern || o.text.empty()) return texts;
    for (std::string& text : texts)
        if (whole_path(text).parent_path() == tokens)
            text = std::string(tokens_folder) + "/" + fs::path(text).filename().generic_string();
    return texts;
}

// Whether a value is a number or true or false in TOML, whose integers have 63 bits.
static bool is_bare(const Option& row, const std::string& text) {
    const bool is_number = row.words.empty() && !row.is_size && text != row.word_for_zero;
    const auto* number = std::get_if<uint64_t*>(&row.value);
    return row.is_bool || (is_number && !std::holds_alternative<std::string*>(row.value) &&
                           !(number && **number > INT64_MAX));
}

static std::string line_of(const Option& row, const std::vector<std::string>& texts) {
    if (!row.is_list())
        return is_bare(row, texts[0]) ? row.name + "=" + texts[0] : toml_line(row.name, texts[0]);
    std::string list;
    for (const std::string& text : texts) list += (list.empty() ? "" : ", ") + toml_text(text);
    return row.name + "=[" + list + "]";
}

NamedTexts saved_options(const Options& o, bool only_compared) {
    NamedTexts lines;
    Options copy = o;
    for (const Option& row : option_table(copy).rows)
        if (row.is_saved && (row.is_compared || !(only_compared || o.is_divided)))
            lines.emplace_back(row.name, line_of(row, saved_texts(o, row)));
    return lines;
}

std::string options_text(const Options& o) {
    std::string text;
    for (const auto& [name, line] : saved_options(o)) text += line + "\n";
    return text;
}

NamedTexts given_options(const Options& o) {
    Options copy = o;
    NamedTexts given;
    for (const Option& row : option_table(copy).rows)
        if (row.source > Source::chosen && row.is_compared) given.emplace_back(row.dashed(), row.shown());
    return given;
}

std::vector<std::string> changed_options(const std::string& before, const Options& o) {
    Options old, now = o;
    OptionTable old_table = option_table(old), table = option_table(now);
    const fs::path folder = whole_path(o.output);
    std::vector<std::string> lines;
    for (const TomlEntry& entry : read_toml(before, "the options before")) {
        Option *was = old_table.find(entry.name), *is = table.find(entry.name);
        if (!was || !was->is_saved) continue;
        was->set(entry.values);
        const auto text = [&](const Option& row, const std::vector<std::string>& texts) {
            const std::string line = line_of(row, absolute_texts(row, texts, folder));
            return line.substr(line.find('=') + 1);
        };
        const std::string before_text = text(*was, was->texts()), text_now = text(*is, saved_texts(o, *is));
        if (before_text != text_now)
            lines.push_back(entry.name + " is " + text_now + ", and was " + before_text);
    }
    return lines;
}

std::vector<std::string> option_of_run(const std::string& folder, const std::string& name) {
    const std::string path = options_path(folder);
    if (!file_exists(path)) return {};
    Options o;
    OptionTable table = option_table(o);
    const Option& row = *table.find(name);
    for (const TomlEntry& entry : read_toml(read_whole_file(path, 1 << 20), path))
        if (entry.name == name) return absolute_texts(row, entry.values, whole_path(folder));
    return {};
}
