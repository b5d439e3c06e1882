#include "llmc/run/text_tokens.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <regex>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/lines.h"
#include "llmc/base/os.h"
#include "llmc/base/output.h"
#include "llmc/base/system_files.h"
#include "llmc/base/utf8.h"
#include "llmc/data/corpus_file.h"
#include "llmc/data/preparation.h"
#include "llmc/data/sidecar.h"
#include "llmc/data/token_file.h"
#include "llmc/data/weighted_path.h"
#include "llmc/files/model_source.h"
#include "llmc/options/train_options.h"
#include "llmc/options/version.h"
#include "llmc/run/run_folder.h"
#include "llmc/text/bpe_trainer.h"
#include "llmc/text/text_reader.h"
#include "llmc/text/tokenizer_roles.h"

static const uint64_t least_bytes = 20000;  // of a text: less has too few different sequences
static const uint64_t stories_bytes = 8000000, stories_val_tokens = 32768;

static std::string folder_of(const Options& o) { return o.output + "/" + tokens_folder; }

// Where they are until the run begins, if an earlier one is in its folder.
static std::string staged_folder_of(const Options& o) {
    return folder_of(o) + "/next" + std::string(staged_suffix);
}

static const char* name_of(const Options& o) { return o.is_stories() ? "stories" : "text"; }

// The sources of a mixture are text1, text2 and so on.
static TextTokens patterns_in(const std::string& folder, const Options& o) {
    const std::string prefix = escaped_pattern(folder) + "/" + name_of(o);
    TextTokens tokens;
    const std::vector<double> shares = shares_of(o.text);
    for (size_t i = 0; i < shares.size(); i++) {
        const std::string source = prefix + std::to_string(i + 1), &text = o.text[i];
        tokens.train.push_back(source + "_train*.bin" + text.substr(text.rfind(':')));
        tokens.val.push_back(source + "_val*.bin");
    }
    if (shares.empty()) tokens.train = {prefix + "_train*.bin"}, tokens.val = {prefix + "_val*.bin"};
    return tokens;
}

// The tokenizer of --tokenizer, else of the model to finetune, whose chat template goes to own_template, else
// bytes.
static std::string tokenizer_name(const Options& o, std::string* own_template = nullptr) {
    if (!o.tokenizer.empty()) return o.tokenizer;
    if (!o.is_given(o.model) || !names_model_file(o.model)) return "bytes";
    ModelSource model = find_model(o.model);
    const auto tokenizer = tokenizer_for("", model, read_shape(model).vocab_size, model.tokenizer);
    if (!tokenizer) fail("-e %s: its tokenizer is not known: name it with --tokenizer", o.model.c_str());
    if (own_template) *own_template = chat_template_of(tokenizer->roles);
    return tokenizer->name;
}

// A tenth of the text for validation, of a short text more, of a long one less. A token of GPT-2's is about
// four bytes.
static uint64_t validation_share(uint64_t bytes, bool tokens_are_bytes) {
    return tokens_are_bytes ? std::clamp<uint64_t>(bytes / 10, 4200, 32768)
                            : std::clamp<uint64_t>(bytes / 40, 1200, 32768);
}

// How much of the first block of a file is text: the rest is marks, or other JSON between the texts. Also
// sees how English it is.
static double share_of_text(PreparationOptions& p, const TextBlock& first, Tokenizer& as_bytes) {
    p.seen_bytes += first.text.size();
    for (size_t at = 0; (at = first.text.find(" the ", at)) != first.text.npos; at++) p.seen_articles++;
    const EncodedBlock encoded = encode_block(first, p, as_bytes);
    size_t tokens = encoded.tokens.size();
    for (const EncodedExample& example : encoded.examples) tokens += example.tokens.size();
    if (tokens == 0 && encoded.skipped_lines)
        fail("--skip-bad-lines leaves out all lines at the beginning of %s; the first: %s",
             first.path.c_str(), encoded.first_skipped.c_str());
    return double(tokens) / double(first.text.size());
}

// Bytes of text in all files, decompressed; about, if they have more than text. Also sees what is in them.
// Error if one is no file, or not text, or if they have too little.
static uint64_t text_bytes(PreparationOptions& p) {
    for (const std::string& path : p.found.files)
        if (std::filesystem::exists(path) && !std::filesystem::is_regular_file(path))
            fail("--text %s is a pipe or a device: save its text in a file", path.c_str());
    Tokenizer as_bytes = open_tokenizer("bytes");
    TextReader reader(p.found.files, p);
    reader.tokenizer = &as_bytes;
    Checksum content;
    uint64_t all = 0;
    double of_text = 0, share = 1;
    for (TextBlock block; reader.next(block);) {
        if (block.begins_file) {
            refuse_zeros(block.path, block.text);
            content.add(&all, sizeof all);
            share = std::min(1.0, share_of_text(p, block, as_bytes));
        }
        content.add(block.text.data(), block.text.size());
        all += block.text.size();
        of_text += share * double(block.text.size());
    }
    p.text_checksum = content.text();
    const auto bytes = uint64_t(std::round(of_text));
    if (bytes < least_bytes && !p.is_chat)
        fail("--text %s has %llu bytes of text; training needs at least %llu", joined(p.files, ", ").c_str(),
             (unsigned long long)bytes, (unsigned long long)least_bytes);
    return bytes;
}

// Of questions and answers, what else decides the tokens.
static std::string chat_description(const PreparationOptions& p) {
    if (!p.is_chat) return "";
    const std::string chat = p.chat_template.empty() ? p.own_template : read_chat_template(p.chat_template);
    return format_string("chat %d %d %s\n", p.pack_tokens, p.loss_on_questions, chat.c_str());
}

// The names, sizes and times of files, a line each, and the sum of the sizes.
static std::pair<std::string, uint64_t> listing_of(const std::vector<std::string>& files) {
    std::string list;
    uint64_t bytes = 0;
    for (const std::string& path : files) {
        const FileStatus status = status_of(open_to_read(path), path);
        bytes += status.size;
        list += whole_name(path) +
                format_string("\n%llu %lld\n", (unsigned long long)status.size, (long long)status.written);
    }
    return {list, bytes};
}

// What decides the tokens: the names of the files, what is in them and in the tokenizer, and the options.
static std::string description(const PreparationOptions& p) {
    const std::string options =
        format_string("%s\n%s\n%s\ndrawn %.9g %d %d %d\n", p.tokenizer.c_str(),
                      document_split_names[size_t(p.split)].c_str(), joined(p.field, "\n").c_str(),
                      p.val_fraction, p.skip_bad_lines, p.special_tokens, p.as_text);
    const std::string tokenizer = parse_bpe(p.tokenizer) ? "" : info_of(open_tokenizer(p.tokenizer)).checksum;
    std::string names;
    for (const std::string& path : p.found.files) names += whole_name(path) + "\n";
    return checksum_of(options + tokenizer + chat_description(p) + names + p.text_checksum);
}

// The file that says what the tokens were made of: what decides them and, on another line, look_of() each
// source.
static std::string stamp_in(const std::string& folder, const Options& o) {
    return folder + "/" + name_of(o) + ".made_of";
}

// What a source looks like: its size, for people, and a checksum of the names, sizes and times of its files.
static nlohmann::json look_of(const PreparationOptions& p) {
    const auto [list, bytes] = listing_of(p.found.files);
    return {{"size", std::to_string(bytes) + " bytes in " + counted(p.found.files.size(), "file")},
            {"files", checksum_of(list)}};
}

static TextTokens count_in(const std::string& folder, const Options& o) {
    TextTokens found = patterns_in(folder, o);
    found.are_counted = true;
    for (const std::string& source : without_weights(found.train))
        found.of_sources.push_back(count_tokens({source}));
    found.train_tokens = std::accumulate(found.of_sources.begin(), found.of_sources.end(), uint64_t(0));
    found.val_tokens = count_tokens(found.val);
    return found;
}

// Whether the tokens that `made_of` describes are there.
static bool are_in(const std::string& folder, const Options& o, const std::string& made_of) {
    const std::string stamp = stamp_in(folder, o);
    if (!file_exists(stamp)) return false;
    const std::string text = read_whole_file(stamp, 1 << 20);  // an earlier version's has no other line
    if (text != made_of && !text.starts_with(made_of + "\n{")) return false;
    try {
        count_in(folder, o);
        return true;
    } catch (const FileError&) {
        throw;
    } catch (const Error&) {
        return false;
    }
}

// Of the text, or of each source of a mixture, without a tokenizer.
static std::vector<PreparationOptions> preparations_of(const Options& o) {
    PreparationOptions p = {o.of_text};
    p.is_chat = false;  // find_text() sees which sources are
    p.pack_tokens = TextOptions().pack_tokens;
    p.out = folder_of(o);
    p.name = name_of(o);
    p.files = without_weights(o.text);
    if (shares_of(o.text).empty()) return {p};
    p.is_of_mixture = true;
    std::vector<PreparationOptions> sources(o.text.size(), p);
    for (size_t i = 0; i < sources.size(); i++) {
        sources[i].name += std::to_string(i + 1);
        sources[i].files = {p.files[i]};
    }
    return sources;
}

// Tokens of the longest of the first examples; about, of a tokenizer that is not trained yet. Error if the
// template is not understood.
static double tokens_of_example(const PreparationOptions& p) {
    const bool is_trained = !parse_bpe(p.tokenizer);
    Tokenizer tokenizer = open_tokenizer(is_trained ? p.tokenizer : "bytes");
    take_template(p, tokenizer);
    return double(longest_example(p, p.found.files, tokenizer)) /
           (is_trained ? 1 : bytes_of_token(p.tokenizer));
}

// Later examples may be a little longer.
static int tokens_to_pack(const Options& o, double longest) {
    if (o.is_given(o.sequence) && o.sequence > 0) return o.sequence;
    int T = 64;
    while (T < 1.25 * longest && T < 1024) T *= 2;
    return T;
}

// Error if an option says how texts of a kind are read, and no source of a mixture is of that kind.
static void refuse_unused(const TextOptions& o, const std::vector<PreparationOptions>& sources) {
    const auto none = [&](auto has) { return std::ranges::none_of(sources, has); };
    if (!o.include.empty() && none([](auto& p) { return !p.include.empty(); }))
        fail("--include chooses among the files of a folder, and no text is one");
    for (const std::string& field : o.field)
        if (none([&](auto& p) { return std::ranges::count(p.field, field) > 0; }))
            fail("--field %s: no text is JSONL with this field", field.c_str());
    if (o.split != DocumentSplit::automatic && none([](auto& p) { return !p.is_chat; }))
        fail("--split-documents is for plain text and --field, and no text is any");
    if (o.skip_bad_lines && none([](auto& p) { return p.skip_bad_lines; }))
        fail("--skip-bad-lines is for JSONL, and no text is any");
    if (!o.chat_template.empty() && none([](auto& p) { return p.is_chat; }))
        fail("--template is for JSONL of questions and answers, and no text is any");
    if (o.loss_on_questions && none([](auto& p) { return p.is_chat; }))
        fail("--loss-on-questions is for JSONL of questions and answers, and no text is any");
}

std::vector<PreparationOptions> find_texts(Options& o) {
    if (std::count(o.text.begin(), o.text.end(), "-"))
        fail("--text -: standard input can be read once: save the text in a file");
    static const std::regex tokens(
        "(text|stories)[0-9]*(\\.(json|tokenizer|made_of)|_.*\\.(bin|mask|json))|stories\\.txt");
    refuse_foreign_folder(folder_of(o), [&](const std::string& name) {
        return is_temporary_name(fold_case(name)) || std::regex_match(fold_case(name), tokens);
    });
    std::string own_template;
    SeenFiles seen;  // its validation part in one source could be trained on in another
    const std::string tokenizer = tokenizer_name(o, &own_template);
    std::vector<PreparationOptions> sources = preparations_of(o);
    for (PreparationOptions& p : sources) {
        p.tokenizer = tokenizer;
        p.own_template = own_template;
        p.text_bytes = stories_bytes;
        if (o.is_stories()) return sources;
        find_text(p);
        for (const std::string& file : p.found.files) seen.add_once(file);
        refuse_inputs(o.output, p.found.files);
        // a blank line ends a document, except in JSONL
        if (p.split == DocumentSplit::automatic && p.field.empty()) p.split = DocumentSplit::blank_line;
    }
    refuse_unused(o.of_text, sources);
    if (sources[0].is_of_mixture) note_unused_include(o.of_text.include, sources);
    double longest = 0;
    for (PreparationOptions& p : sources) {
        p.text_bytes = text_bytes(p);
        if (!p.is_chat) continue;
        o.of_text.is_chat = true;
        longest = std::max(longest, tokens_of_example(p));
        if (o.plans_only()) show_example(p);
    }
    if (o.of_text.is_chat) o.of_text.pack_tokens = tokens_to_pack(o, longest);
    return sources;
}

TextTokens plan_tokens(const Options& o, const std::vector<PreparationOptions>& sources) {
    const std::string tokenizer = tokenizer_name(o);
    const double bytes_each = bytes_of_token(tokenizer);
    TextTokens planned = patterns_in(folder_of(o), o);
    planned.is_english = std::ranges::all_of(sources, [](const PreparationOptions& p) {
        return !p.is_chat && 500 * p.seen_articles > p.seen_bytes;  // usual are one in 100 to 200 bytes
    });
    for (const PreparationOptions& source : sources) {
        const uint64_t bytes = source.text_bytes;
        const uint64_t val =
            o.is_stories() ? stories_val_tokens : validation_share(bytes, tokenizer == "bytes");
        const auto all = uint64_t(double(bytes) / bytes_each);
        planned.of_sources.push_back(std::max(val, all - std::min(all, val)));
        planned.train_tokens += planned.of_sources.back();
        planned.val_tokens += val;
        const uint64_t val_bytes = std::min(bytes / 2, uint64_t(double(val) * bytes_each));
        planned.val_bytes += val_bytes;
        planned.bytes += bytes - val_bytes;
    }
    return planned;
}

// Writes the stories; the tokenizer decides how many are for validation.
static void write_stories(PreparationOptions& p) {
    p.files = {p.out + "/stories.txt"};
    CorpusOptions corpus = {.out = p.files[0], .bytes = stories_bytes, .seed = 1};
    if (const std::optional<BpeOptions> bpe = parse_bpe(p.tokenizer)) {
        write_corpus(corpus);
        Tokenizer tokenizer = train_tokenizer({{p.files, p}}, *bpe);
        corpus.tokenizer = p.out + "/stories_tokenizer.json";
        write_whole_file(corpus.tokenizer, {text_of_tokenizer_json(tokenizer)});
    } else {
        corpus.tokenizer = p.tokenizer;
        const std::string trained = p.out + "/stories_tokenizer.json";
        if (!is_same_file(trained, p.tokenizer)) remove_file(trained);
    }
    corpus.val_tokens = stories_val_tokens;
    p.val_tokens = write_corpus(corpus);
}

// Of the model that is finetuned; 0: those of a new one follow from -t.
static int positions_of_model(const Options& o) {
    if (!o.is_given(o.model)) return 0;
    ModelSource model = find_model(o.model);
    return model.names_positions() ? read_shape(model).max_seq_len : 0;
}

// Chooses the validation part. Returns what decides the tokens.
static std::string complete_preparation(const Options& o, PreparationOptions& p) {
    if (!o.tokenizer.empty()) p.tokenizer = o.tokenizer;  // it may have been chosen meanwhile
    // another version of this program may write other stories
    if (o.is_stories()) return version_text("stories") + "\n" + p.tokenizer;
    if (p.is_chat) p.pack_tokens = o.of_text.pack_tokens, p.most_positions = positions_of_model(o);
    const uint64_t share = validation_share(p.text_bytes, p.tokenizer == "bytes");
    // rounded, so that the draw does not depend on how much markup a text has
    p.val_fraction =
        std::stod(format_string("%.3g", double(share) * bytes_of_token(p.tokenizer) / double(p.text_bytes)));
    if (p.is_chat) p.val_fraction = std::min(p.val_fraction, 0.1);
    p.chooses_fraction = true;
    return description(p);
}

// The tokenizer that is trained on the sources of a mixture, without its questions and answers if it has
// other texts; none: there is no mixture, or nothing to train.
static std::optional<Tokenizer> common_tokenizer(const std::vector<PreparationOptions>& sources) {
    const std::optional<BpeOptions> bpe = parse_bpe(sources[0].tokenizer);
    if (sources.size() < 2 || !bpe) return std::nullopt;
    const bool has_plain = std::ranges::any_of(sources, [](auto& p) { return !p.is_chat; });
    std::vector<TextsToRead> texts;
    for (const PreparationOptions& p : sources)
        if (!p.is_chat || !has_plain) texts.push_back({p.found.files, p});
    return train_tokenizer(texts, *bpe);
}

// A killed program may have left a part.
static void remove_staged_tokens(const Options& o) {
    const std::string folder = staged_folder_of(o);
    if (!is_folder(folder) || is_link(folder)) return;
    for (const std::string& name : names_in(folder)) remove_file(folder + "/" + name);
    remove_folder(folder);
}

bool prepare_text(const Options& o, std::vector<PreparationOptions> sources) {
    const StopWritingAtSignals stops;
    std::string made_of;
    nlohmann::json looks = nlohmann::json::array();
    for (PreparationOptions& source : sources) {
        made_of += complete_preparation(o, source);
        if (!o.is_stories()) looks.push_back(look_of(source));
    }
    RunFolder lock;
    lock.open(o.output);
    create_subfolder(folder_of(o));
    const bool is_staged = !o.resume && holds_run(o.output) && !are_in(folder_of(o), o, made_of);
    const std::string folder = is_staged ? staged_folder_of(o) : folder_of(o);
    create_subfolder(folder);
    const std::string stamp = stamp_in(folder, o);
    const bool is_prepared = are_in(folder, o, made_of);
    const std::string stamped = made_of + "\n" + json_text(JsonMembers{{"sources", looks}}, -1) + "\n";
    if (is_prepared && read_whole_file(stamp) != stamped) write_whole_file(stamp, {stamped});  // another date
    if (is_prepared && !o.is_stories())
        print_line(stdout, "the text has not changed: its tokens in %s are used again", folder.c_str());
    for (const PreparationOptions& source : sources)
        if (is_prepared && source.is_chat) show_example(source);
    if (is_staged || !is_prepared)
        for (const std::string& name : names_in(folder_of(o)))  // which will be replaced
            if (!is_temporary_name(fold_case(name))) check_can_move(folder_of(o) + "/" + name);
    if (is_prepared) return is_staged;
    remove_staged_tokens(o);  // of another text
    create_subfolder(folder);
    for (PreparationOptions& source : sources) source.out = folder;
    if (o.is_stories()) {
        remove_file(stamp);
        write_stories(sources[0]);
    }
    const std::optional<Tokenizer> common = common_tokenizer(sources);
    for (PreparationOptions& source : sources) {
        source.before_replacing = [&] {
            lock.lease.check();
            remove_file(stamp);
        };
        if (common) source.trained = &*common;
        prepare_tokens(source);
    }
    lock.lease.check();
    // last, so that an interrupted preparation is repeated
    write_whole_file(stamp, {stamped});
    return is_staged;
}

bool has_staged_tokens(const Options& o) {
    return !o.text.empty() && o.train_data == patterns_in(staged_folder_of(o), o).train;
}

// A tokenizer in the folder that is asked for stays.
void place_staged_tokens(const Options& o) {
    if (!has_staged_tokens(o)) return remove_staged_tokens(o);
    const std::string from = staged_folder_of(o), to = folder_of(o);
    const std::regex replaced(name_of(o) +
                              std::string("[0-9]*(\\.(json|tokenizer|made_of)|_.*\\.(bin|mask|json))"));
    remove_file(stamp_in(to, o));  // first, and the new one is last: after a kill, the text is prepared again
    std::vector<std::string> names = names_in(to);
    std::ranges::reverse(names);  // text.json, which lists the shards, after them
    for (const std::string& name : names)
        if (std::regex_match(fold_case(name), replaced) && !is_same_file(to + "/" + name, o.tokenizer))
            remove_file(to + "/" + name);
    for (const std::string& name : names_in(from))
        if (from + "/" + name != stamp_in(from, o)) move_path(from + "/" + name, to + "/" + name);
    sync_folder(to);
    move_path(stamp_in(from, o), stamp_in(to, o));
    sync_folder(to);
    remove_staged_tokens(o);
}

void name_placed_tokens(Options& o) {
    const TextTokens staged = patterns_in(staged_folder_of(o), o), placed = patterns_in(folder_of(o), o);
    o.train_data = placed.train;
    if (o.val_data == staged.val) o.val_data = placed.val;
}

void check_tokens(const Options& o) {
    if (o.text.empty() || o.sources.of(&o.train_data) != Source::run) return;
    std::vector<std::string> shards = without_weights(o.train_data);
    shards.insert(shards.end(), o.val_data.begin(), o.val_data.end());
    try {
        for (const std::string& pattern : shards) count_tokens({pattern});
        tokenizer_of_shards(shards);
    } catch (const FileError&) {
        throw;
    } catch (const Error& error) {  // whose advice is for shards of prepare_data
        const std::string what = error.what();
        std::string texts;
        for (const std::string& text : o.text) texts += " --text " + shell_word(text);
        fail("%s: restore %s, or train the run's model on its text in a new run: %s -e %s%s -o FOLDER",
             what.substr(0, what.find(": ")).c_str(), folder_of(o).c_str(), command_of("train_gpt2").c_str(),
             shell_word(o.output).c_str(), texts.c_str());
    }
}

// Error if its files are gone.
static void note_if_changed(PreparationOptions p, const nlohmann::json& before) {
    find_text(p);
    const nlohmann::json now = look_of(p);
    const std::string size = now["size"], size_before = before.at("size");
    if (now == before) return;
    print_line(
        stdout,
        "note: the text %s is not as it was when its tokens were prepared: it has %s, and had %s; the run "
        "continues with those tokens, and a new run in another folder reads the text",
        printable(joined(p.files, ", ")).c_str(), size.c_str(),
        size == size_before ? "another date, or other names" : printable(size_before).c_str());
}

void note_changed_texts(const Options& o) {
    const std::string stamp = stamp_in(folder_of(o), o);
    if (!o.has_text() || !file_exists(stamp)) return;
    const std::string text = read_whole_file(stamp, 1 << 20);
    const size_t end = text.find('\n');
    if (end == text.npos) return;  // of an earlier version
    const std::vector<PreparationOptions> sources = preparations_of(o);
    nlohmann::json looks;
    try {
        looks = parse_json_object(text.substr(end), stamp).at("sources");
        for (nlohmann::json& look : looks) look["size"].get_ref<const std::string&>();
    } catch (const std::exception&) {
        looks = nullptr;
    }
    if (!looks.is_array() || looks.size() != sources.size())
        return print_line(stdout, "note: %s is damaged: whether the text has changed is unknown",
                          printable(stamp).c_str());
    for (size_t i = 0; i < sources.size(); i++) try {
            note_if_changed(sources[i], looks[i]);
        } catch (const Error& error) {  // the run does not need it
            print_line(stdout,
                       "note: the text %s cannot be read any more: %s; the run continues with the tokens "
                       "that were prepared",
                       printable(joined(sources[i].files, ", ")).c_str(), error.what());
        }
}

TextTokens find_tokens(const Options& o, bool is_staged, const TextTokens& planned) {
    TextTokens found = count_in(is_staged ? staged_folder_of(o) : folder_of(o), o);
    found.bytes = planned.bytes;
    found.val_bytes = planned.val_bytes;
    found.is_english = planned.is_english;
    return found;
}
