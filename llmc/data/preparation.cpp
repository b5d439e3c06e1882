#include "llmc/data/preparation.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <regex>
#include <set>
#include <span>

#include "llmc/base/clock.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/lines.h"
#include "llmc/base/os.h"
#include "llmc/base/output.h"
#include "llmc/base/paths.h"
#include "llmc/base/utf8.h"
#include "llmc/data/example_packer.h"
#include "llmc/data/sidecar.h"
#include "llmc/data/staged_shards.h"
#include "llmc/data/token_file.h"
#include "llmc/data/validation_draw.h"
#include "llmc/text/chat_example.h"
#include "llmc/text/tokenizer.h"

namespace fs = std::filesystem;

// --- tokens for training and validation ---

static const size_t most_unread_fields = 12;  // in the note

// Splits the stream of tokens: the first val_tokens, or the parts that are drawn, go to `val`, the others to
// `train`.
struct Preparation {
    int end_of_text;
    uint64_t val_tokens;
    ShardWriter val, train;
    std::optional<ValidationDraw> draw = {};
    std::optional<ExamplePacker> val_examples = {}, train_examples = {};  // of questions and answers
    ExampleDraw example_draw = {};
    int last_token = -1;
    ExampleNotes notes = {};
    uint64_t bytes = 0, skipped_lines = 0, unused_marks = 0;
    std::string first_skipped = "";
    int first_mark = -1;
    std::set<std::string> unread_fields = {};  // of JSONL

    void add_tokens(std::span<const uint16_t> tokens) {
        const bool repeats_end = !tokens.empty() && tokens[0] == end_of_text && last_token == end_of_text;
        tokens = tokens.subspan(repeats_end);
        if (tokens.empty()) return;
        last_token = tokens.back();
        if (draw) return draw->add(tokens);
        const size_t for_val = size_t(std::min<uint64_t>(tokens.size(), val_tokens - val.total));
        val.add(tokens.first(for_val));
        train.add(tokens.subspan(for_val));
    }
    void add_example(const EncodedExample& example) {
        const bool validates =
            example_draw.fraction > 0 ? example_draw.validates(example) : val.total < val_tokens;
        (validates ? val_examples : train_examples)->add(example);
    }
    void add_block(const EncodedBlock& block) {
        for (const EncodedExample& example : block.examples) add_example(example);
        const uint16_t end = uint16_t(end_of_text);
        if (block.begins_document && last_token != end) add_tokens({&end, 1});
        add_tokens(block.tokens);
        bytes += block.text_bytes;
        notes.add(block);
        if (skipped_lines == 0) first_skipped = block.first_skipped;
        skipped_lines += block.skipped_lines;
        if (unused_marks == 0) first_mark = block.first_mark;
        unused_marks += block.unused_marks;
        for (const std::string& name : block.unread_fields)
            if (unread_fields.size() <= most_unread_fields) unread_fields.insert(name);
    }
};

// --- text to tokens ---

// A progress bar on standard error; prints nothing if that is not a terminal.
struct ProgressBar {
    bool terminal = is_terminal(stderr);
    double start = now(), last = start;  // of the last drawing

    // `done` of `total` bytes (0: unknown) are processed. Draws at most five times per second.
    void show(uint64_t done, uint64_t total) {
        if (!terminal || !done || now() - last < 0.2) return;
        last = now();
        const double rate = double(done) / (last - start);
        if (!total) {
            fprintf(stderr, "\r%.1f MB, %.1f MB/s \x1b[K", 1e-6 * double(done), 1e-6 * rate);
            return;
        }
        done = std::min(done, total);  // a file may grow while it is read
        const double share = double(done) / double(total);
        const int width = 40, filled = int(share * width);
        const long left = long(double(total - done) / rate);
        fprintf(stderr, "\r[%s%s] %3.0f%%, %.1f MB/s, %ld:%02ld left \x1b[K",
                std::string(filled, '#').c_str(), std::string(width - filled, ' ').c_str(), 100 * share,
                1e-6 * rate, left / 60, left % 60);
    }
    ~ProgressBar() {  // clears the line, also after an error
        if (terminal && last != start) fprintf(stderr, "\r\x1b[K");
    }
};

// Prints a note for each file that is not UTF-8. This is not an error: every byte has a token.
static void note_encoding(const TextBlock& block, const EncodedBlock& encoded, std::set<std::string>& noted) {
    if (encoded.not_utf8 == std::string::npos || !noted.insert(block.path).second) return;
    print_line(stderr,
               "note: %s is not UTF-8 at byte %llu; its bytes are used unchanged (an editor "
               "saves it as UTF-8)",
               block.path.c_str(), (unsigned long long)(block.first_byte + encoded.not_utf8));
}

// Threads read blocks one at a time, tokenize them in parallel, and add their tokens one at a time, in the
// order of the blocks. A thread whose block is not the next one leaves its tokens to the thread that adds
// that one. The first error in the order of the blocks ends the work.
struct BlockPipeline {
    Preparation& work;
    TextReader& reader;
    const size_t most_waiting;  // tokenized blocks
    ProgressBar bar = {};
    std::set<std::string> noted = {};
    std::mutex reading = {}, adding = {};
    std::condition_variable added = {};
    size_t blocks_read = 0, blocks_added = 0;
    std::atomic<bool> ended = false;
    std::exception_ptr error = nullptr;

    struct Item {
        size_t number = 0;
        TextBlock block = {};
        EncodedBlock encoded = {};
        std::exception_ptr error = nullptr;

        void attempt(const std::function<void()>& action) {
            if (!error) try {
                    action();
                } catch (...) {
                    error = std::current_exception();
                }
        }
    };
    std::map<size_t, Item> waiting = {};  // by number; guarded by `adding`, as blocks_added and error are

    // False: there is nothing more to do.
    bool read(Item& item) {
        const std::lock_guard lock(reading);
        // the first thread, since a stop signal ends only its waits for a stopped terminal (signals.h)
        if (omp_get_thread_num() == 0) bar.show(reader.bytes_read, reader.total_bytes);
        bool more = false;
        item.attempt([&] { more = !ended && reader.next(item.block); });
        if (!more) ended = true;
        item.number = blocks_read++;
        return more || item.error;
    }
    void add(Item tokenized) {
        std::unique_lock lock(adding);
        added.wait(lock, [&] { return error || tokenized.number < blocks_added + most_waiting; });
        waiting[tokenized.number] = std::move(tokenized);
        while (!error && waiting.contains(blocks_added)) {
            Item item = std::move(waiting.extract(blocks_added++).mapped());
            item.attempt([&] {
                note_encoding(item.block, item.encoded, noted);
                work.add_block(item.encoded);
            });
            error = item.error;
        }
        if (error) ended = true;
        added.notify_all();
    }
};

// Each thread has a tokenizer, since a tokenizer is not thread-safe.
static void add_files(Preparation& work, TextReader& reader, std::vector<Tokenizer>& tokenizers) {
    BlockPipeline pipeline = {work, reader, 4 * tokenizers.size()};
#pragma omp parallel num_threads(int(tokenizers.size()))
    for (BlockPipeline::Item item; pipeline.read(item); item = {}) {
        item.attempt([&] {
            item.encoded = encode_block(item.block, reader.options, tokenizers[omp_get_thread_num()]);
            item.block.text = {};
        });
        pipeline.add(std::move(item));
    }
    if (pipeline.error) std::rethrow_exception(pipeline.error);
}

// --- the tokenizer ---

static std::string trained_file(const std::string& prefix, const char* type) {
    return prefix + "_tokenizer." + type;
}

static Tokenizer find_tokenizer(const PreparationOptions& options) {
    const std::optional<BpeOptions> asked = parse_bpe(options.tokenizer);
    BpeOptions bpe = options.bpe;
    if (asked) bpe.vocab_size = asked->vocab_size;
    Tokenizer tokenizer = options.trained ? *options.trained
                          : asked         ? train_tokenizer({{options.found.files, options}}, bpe)
                                          : open_tokenizer(options.tokenizer);
    take_template(options, tokenizer);
    return tokenizer;
}

// The tokenizer as other programs read it.
static void write_trained(Tokenizer& tokenizer, const std::string& prefix) {
    const std::string json = trained_file(prefix, "json"), bin = trained_file(prefix, "bin");
    write_whole_file(json, {text_of_tokenizer_json(tokenizer)});
    if (fits_tokenizer_file(tokenizer))
        write_tokenizer(tokenizer, bin);
    else if (file_exists(bin))
        remove_file(bin);  // of another tokenizer
    print_line(stdout, "%s: %d tokens", json.c_str(), tokenizer.vocab_size());
}

// Whether a tokenizer was trained for the earlier shards of this name, and written for other programs.
static bool was_trained(const std::string& prefix) {
    if (!file_exists(prefix + ".json")) return false;
    const nlohmann::json sidecar = read_json_object(prefix + ".json");
    const auto made_with = sidecar.find("tokenizer_of_shards");
    return made_with != sidecar.end() && made_with->is_object() &&
           json_text(made_with->value("name", nlohmann::json())).starts_with("\"bpe:");
}

// Not what this run reads.
static void remove_trained(const std::string& prefix, const PreparationOptions& options) {
    for (const char* type : {"json", "bin"})
        if (const std::string path = trained_file(prefix, type); !is_same_file(path, options.tokenizer))
            remove_file(path);
}

// --- all of it ---

static std::string prefix_of(const PreparationOptions& options) {
    return generic_text(fs::path(options.out) / options.name);
}

static bool is_temporary(const std::string& path) {
    return is_temporary_name(fs::path(path).filename().string());
}

// The files in the folder with names of shards and masks, also temporary ones, as this run spells them.
static std::set<std::string> earlier_shards(const PreparationOptions& options) {
    static const std::regex after_name(
        "(_train|_val)(_[0-9]{6,})?\\.(bin|mask)(\\.vulkan-gpt2\\.new)?(\\.vulkan-gpt2\\.tmp)?");
    std::set<std::string> paths;
    const auto path_of = [&](const std::string& file) { return generic_text(fs::path(options.out) / file); };
    for (const std::string& file : names_in(options.out)) {
        if (file.size() < options.name.size()) continue;
        // on a file system without case, a new shard may be this file under another spelling
        const std::string end = fold_case(file.substr(options.name.size())), own = options.name + end;
        if (std::regex_match(end, after_name) && (file == own || is_same_file(path_of(file), path_of(own))))
            paths.insert(path_of(own));
    }
    return paths;
}

// This program's earlier shards and masks that no new one replaces: a pattern would match both.
static std::set<std::string> replaced_shards(const PreparationOptions& options, const StagedShards& fresh) {
    std::set<std::string> replaced = own_shards(prefix_of(options));
    for (const TokenShard& shard : fresh.shards)
        replaced.erase(shard.path), replaced.erase(mask_of(shard.path));
    std::erase_if(replaced, [](const std::string& path) { return !file_exists(path); });
    return replaced;
}

// Deletes them, and temporary ones that a killed run left.
static void remove_earlier_shards(const PreparationOptions& options, const std::set<std::string>& replaced) {
    for (const std::string& path : earlier_shards(options)) {
        if (!is_temporary(path) && !replaced.contains(path)) continue;
        if (path.ends_with(".bin")) print_line(stdout, "%s: removed, an earlier shard", path.c_str());
        remove_file(path);
    }
}

// What this run reads, but for the tokenizer.
static std::vector<std::string> inputs_of(const PreparationOptions& options) {
    std::vector<std::string> inputs = options.found.files;
    inputs.insert(inputs.end(), options.files_from.begin(), options.files_from.end());
    if (!options.chat_template.empty()) inputs.push_back(options.chat_template);
    return inputs;
}

// Error if one of these shards and masks, which this run will replace or delete, is somebody else's, such as
// llm.c's, or an input.
static void check_shards(const PreparationOptions& options, const std::set<std::string>& paths) {
    const std::vector<std::string> inputs = inputs_of(options);
    const std::set<std::string> own = own_shards(prefix_of(options));
    const auto is_ours = [&](const std::string& path) {
        return (own.contains(path) || is_temporary(path)) && (is_token_shard(path) || is_mask(path));
    };
    for (const std::string& path : paths) check_output(path, inputs, is_ours, Target::file);
}

// Checks the new shards, whose number is known now, by their paths: a folder may list a file under a spelling
// that only the file system knows.
static void check_new_shards(const PreparationOptions& options, const StagedShards& staged) {
    std::set<std::string> paths;
    for (const TokenShard& shard : staged.shards) paths.insert({shard.path, mask_of(shard.path)});
    check_shards(options, paths);
}

// Checks all outputs that are known before the texts are read.
static void check_outputs(const PreparationOptions& options) {
    const std::string prefix = prefix_of(options);
    const std::vector<std::string> inputs = inputs_of(options);
    check_output(prefix + ".json", inputs, is_sidecar, Target::file);
    std::set<std::string> shards = earlier_shards(options);
    shards.insert({prefix + "_train.bin", prefix + "_val.bin"});
    check_shards(options, shards);
    // the tokenizer itself is neither written nor removed
    const auto check = [&](const std::string& path, const auto& is_its_kind) {
        if (!is_same_file(path, options.tokenizer)) check_output(path, inputs, is_its_kind, Target::file);
    };
    check(prefix + ".tokenizer", is_kept_tokenizer);
    if (!parse_bpe(options.tokenizer) && !was_trained(prefix)) return;
    check(trained_file(prefix, "json"), is_tokenizer_json);
    check(trained_file(prefix, "bin"), is_tokenizer_file);
}

// Error if a file of the earlier shards would stay, so that neither they nor the new ones are complete.
static void check_earlier_files(const PreparationOptions& options, const std::string& prefix) {
    for (const std::string& path : earlier_shards(options)) check_can_move(path);
    for (const char* end : {".json", ".tokenizer", "_tokenizer.json", "_tokenizer.bin"})
        if (const std::string path = prefix + end; !is_same_file(path, options.tokenizer))
            check_can_move(path);
}

static void check_options(const PreparationOptions& options) {
    if (options.out.empty() || options.name.empty()) fail("--out DIR and --name NAME are needed");
    if (!is_plain_name(options.name))
        fail(
            "--name %s: the name must not lead to another folder: give it to --out, without a slash in the "
            "name",
            options.name.c_str());
    if (options.shard_tokens < 1 || options.shard_tokens > max_shard_tokens)
        fail("--shard-tokens is %llu, not in 1 to %llu", (unsigned long long)options.shard_tokens,
             (unsigned long long)max_shard_tokens);
    if (options.val_tokens > 0 && options.val_fraction > 0)
        fail("--val-tokens and --val-fraction are both given: leave one out");
    const bool trains = parse_bpe(options.tokenizer).has_value();
    if (!trains && options.bpe != BpeOptions())
        fail(
            "--min-frequency, --max-token-length and --special-token are for --tokenizer bpe:N, which trains "
            "a tokenizer on the text");
}

// How files of two kinds are read.
static std::string advice_to_mix(const std::string& a, const std::string& b) {
    return format_string(
        "%s mixes them by weights, as in --text %s --text %s, which may be patterns; of a folder, "
        "--include reads one kind; other programs read them one by one",
        command_of("train_gpt2").c_str(), shell_word(a + ":0.5").c_str(), shell_word(b + ":0.5").c_str());
}

// Error if a file is JSONL by its name, and is to be read as plain text.
static void refuse_jsonl(const std::string& file, const std::string& first, bool skips) {
    if (!is_named_jsonl(file)) return;
    check_first_line(file, skips);
    if (file != first)
        fail("%s is JSONL, and %s is plain text: %s", file.c_str(), first.c_str(),
             advice_to_mix(first, file).c_str());
    fail(
        "%s: name the field of the JSON objects that holds the text, as in --field text; questions and "
        "answers have %s",
        file.c_str(), chat_fields);
}

// Error if a file is no questions and answers, as the first one is.
static void refuse_mixed(const PreparationOptions& options, const std::vector<std::string>& files) {
    for (const std::string& file : files)
        if (options.is_chat && !options.skip_bad_lines && is_without_examples(file))
            fail("%s has questions and answers, and %s is another text: %s", files[0].c_str(), file.c_str(),
                 advice_to_mix(files[0], file).c_str());
}

// Error if a pipe is given twice, under whatever names.
static void refuse_repeated_pipes(const std::vector<std::string>& inputs) {
    const auto path_of = [](const std::string& input) { return input == "-" ? "/dev/stdin" : input; };
    for (const std::string& pipe : inputs) {
        if (!is_read_once(pipe)) continue;
        for (const std::string& input : inputs) {
            if (&input == &pipe || (input != pipe && !is_same_file(path_of(input), path_of(pipe)))) continue;
            const std::string shown = pipe == "-" ? "standard input (-)" : pipe;
            if (!is_read_once(input))
                fail("%s is the file %s, which is given, too: leave one out", shown.c_str(), input.c_str());
            fail("%s is given twice: it can be read once", shown.c_str());
        }
    }
}

void find_text(PreparationOptions& options) {
    std::vector<std::string> paths = options.files;
    std::vector<std::string> inputs = options.files_from;
    for (const std::string& list : options.files_from) {
        const std::vector<std::string> listed = read_file_list(list);
        paths.insert(paths.end(), listed.begin(), listed.end());
    }
    if (paths.empty()) fail("no text file is given (- is standard input)");
    inputs.insert(inputs.end(), paths.begin(), paths.end());
    refuse_repeated_pipes(inputs);
    // of a mixture, it is for the sources that are folders
    if (options.is_of_mixture && std::ranges::none_of(matching_paths(paths[0]), is_folder))
        options.include = {};
    FoundText& found = options.found = {};
    found.files = files_below(paths, options.include, [&](const std::string& why) {
        if (found.left_out++ == 0) found.first_left_out = why;
    });
    options.of_folders = {found.files.begin(), found.files.end()};
    for (const std::string& path : paths) options.of_folders.erase(path);
    find_examples(options, found.files);
    refuse_mixed(options, found.files);
    if (!options.is_jsonl() && !options.as_text)
        for (const std::string& file : found.files)
            refuse_jsonl(file, found.files[0], options.skip_bad_lines);
    if (options.skip_bad_lines && !options.is_jsonl())
        fail("--skip-bad-lines is for JSONL: name the field that holds the text, as in --field text");
}

void note_unused_include(const std::vector<std::string>& include,
                         std::span<const PreparationOptions> sources) {
    const auto has = [](const PreparationOptions& source, const std::string& pattern) {
        return std::ranges::any_of(source.of_folders,
                                   [&](const std::string& file) { return is_included(file, {pattern}); });
    };
    for (const std::string& pattern : include)
        if (std::ranges::none_of(sources, [&](const auto& source) { return has(source, pattern); }))
            print_line(stderr, "note: --include %s: no text file of a folder has such a name",
                       shell_word(pattern).c_str());
}

void note_left_out(const PreparationOptions& options) {
    const FoundText& found = options.found;
    if (found.left_out)
        print_line(stderr, "note: %llu %s left out of folders; the first: %s",
                   (unsigned long long)found.left_out, found.left_out == 1 ? "entry was" : "entries were",
                   found.first_left_out.c_str());
    if (!options.is_of_mixture) note_unused_include(options.include, {&options, 1});
}

void note_left_out(const TextReader& reader) {
    if (reader.left_out)
        print_line(stderr, "note: the rest of %s of folders was left out; the first: %s",
                   counted(reader.left_out, "file").c_str(), reader.first_left_out.c_str());
}

// Error if there is nothing to train on, or nothing of the validation text that was asked for.
static void check_split(const Preparation& work, const PreparationOptions& options,
                        const std::string& first_file) {
    if (work.bytes == 0) fail("%s has no text", first_file.c_str());
    if (work.draw && (work.draw->drawn == 0 || work.train.total < 2))  // an end of text alone
        fail("%llu of %llu documents are drawn for validation%s: give more text, or --split-documents",
             (unsigned long long)work.draw->drawn, (unsigned long long)work.draw->parts,
             options.chooses_fraction ? "" : " (--val-fraction)");
    if (work.train.total == 0)
        fail("all %llu tokens of the text are among the first %llu, which are for validation: give more text",
             (unsigned long long)work.val.total, (unsigned long long)options.val_tokens);
}

static void print_summary(const Preparation& work, const Tokenizer& tokenizer, double seconds) {
    if (work.unused_marks > 0)
        fprintf(
            stderr, "note: the text has %s such as %s, encoded as ordinary text; %s\n",
            counted(work.unused_marks, "mark").c_str(), printable(tokenizer.decode(work.first_mark)).c_str(),
            work.first_mark == work.end_of_text ? "--split-documents endoftext makes it the end of a document"
                                                : "--special-tokens makes them tokens");
    if (work.skipped_lines > 0)
        print_line(stderr, "note: %s %s left out; the first: %s",
                   counted(work.skipped_lines, "bad line").c_str(), work.skipped_lines == 1 ? "was" : "were",
                   work.first_skipped.c_str());
    std::vector<std::string> shown(work.unread_fields.begin(), work.unread_fields.end());
    shown.resize(std::min(shown.size(), most_unread_fields));
    if (!shown.empty())
        print_line(stderr, "note: fields that are not read: %s%s%s", joined(shown, ", ").c_str(),
                   work.unread_fields.size() > shown.size() ? ", ..." : "",
                   work.train_examples ? "" : " (--field can be repeated)");
    if (work.draw)
        printf("%llu of %llu documents, or blocks of long ones, are for validation\n",
               (unsigned long long)work.draw->drawn, (unsigned long long)work.draw->parts);
    if (work.draw && work.draw->repeats)
        printf("note: %s of texts for validation left out\n", counted(work.draw->repeats, "repeat").c_str());
    const uint64_t total = work.val.total + work.train.total;
    if (work.train_examples)
        return print_line(stdout, "%llu tokens, with those that fill sequences", (unsigned long long)total);
    printf("%llu bytes, %llu tokens, %.2f bytes per token, %.1f MB/s\n", (unsigned long long)work.bytes,
           (unsigned long long)total, double(work.bytes) / double(total),
           1e-6 * double(work.bytes) / seconds);
}

static DrawOptions draw_options(const PreparationOptions& options, const TextReader& reader) {
    const uint64_t bytes = options.text_bytes ? options.text_bytes : reader.total_bytes;
    const double tokens = double(bytes) / bytes_of_token(options.tokenizer);
    return {.fraction = options.val_fraction, .text_tokens = tokens, .seed = options.seed};
}

// Questions and answers have one shard each for validation and training, since a sequence spans no two.
static void pack_examples(Preparation& work, const PreparationOptions& options) {
    const auto packer = [&](ShardWriter& writer) {
        writer.limit = max_shard_tokens;
        writer.packed = options.pack_tokens;
        return ExamplePacker{uint64_t(options.pack_tokens), uint16_t(work.end_of_text),
                             [&](std::span<const uint16_t> tokens, const std::vector<bool>& targets) {
                                 writer.add(tokens, targets);
                             }};
    };
    work.val_examples.emplace(packer(work.val));
    work.train_examples.emplace(packer(work.train));
    work.example_draw = {.fraction = options.val_fraction, .random = Random(options.seed)};
}

static void finish_examples(Preparation& work, const PreparationOptions& options) {
    for (ExamplePacker* packer : {&*work.val_examples, &*work.train_examples}) packer->finish();
    const ExamplePacker &val = *work.val_examples, &train = *work.train_examples;
    if (train.examples == 0 || (work.example_draw.fraction > 0 && val.examples == 0))
        fail("the text has %s, too few different ones for training and validation: give more",
             counted(val.examples + train.examples, "question").c_str());
    print_line(stdout, "%s for training, %llu for validation, in sequences of %llu tokens",
               counted(train.examples, "example").c_str(), (unsigned long long)val.examples,
               (unsigned long long)train.T);
    work.notes.cut = val.cut + train.cut;
    work.notes.print(options.pack_tokens, options.pack_tokens == options.most_positions);
}

void show_example(const PreparationOptions& options) {
    TextBlock block;
    TextReader reader(options.found.files, options);
    if (!reader.next(block)) return;
    Tokenizer tokenizer = open_tokenizer(parse_bpe(options.tokenizer) ? "bytes" : options.tokenizer);
    take_template(options, tokenizer);
    const EncodedBlock encoded = encode_block(block, options, tokenizer);
    if (encoded.examples.empty()) return;
    const EncodedExample& e = encoded.examples[0];
    std::string text = tokenizer.decode(tokenizer.end_of_text);
    for (size_t i = 0; i < e.tokens.size(); i++) {
        if (e.targets[i] && (i == 0 || !e.targets[i - 1])) text += "[";
        text += tokenizer.decode(e.tokens[i]);
        if (e.targets[i] && i + 1 < e.tokens.size() && !e.targets[i + 1]) text += "]";
    }
    print_line(stdout,
               "questions and answers; the first example as the model sees it, which learns what is in "
               "[brackets]:");
    printf("---\n%s\n---\n", printable_lines(text + tokenizer.decode(tokenizer.end_of_text) + "]").c_str());
}

void prepare_tokens(PreparationOptions options) {
    check_options(options);
    if (options.found.files.empty()) find_text(options);
    if (!options.is_chat && options.pack_tokens != TextOptions().pack_tokens)
        fail("-t %d is for questions and answers, and %s is none: -t of %s says it for plain text",
             options.pack_tokens, options.found.files[0].c_str(), command_of("train_gpt2").c_str());
    if (options.is_chat && options.shard_tokens != PreparationOptions().shard_tokens)
        fail(
            "--shard-tokens is for plain text: questions and answers are one shard for training and one for "
            "validation");
    note_left_out(options);
    const std::vector<std::string>& files = options.found.files;
    SeenFiles seen;
    for (const std::string& file : files) seen.add_once(file);
    TextReader reader(files, options);
    create_folders(options.out);
    check_outputs(options);
    const FileWriter lock = lock_outputs(prefix_of(options));
    const std::string& prefix = lock.path;
    check_earlier_files(options, prefix);
    StagedShards staged;
    Tokenizer of_reader = find_tokenizer(options);  // which cuts blocks while the others encode
    reader.tokenizer = &of_reader;
    if (options.is_chat) show_example(options);
    const double start = now();
    std::vector<Tokenizer> tokenizers;
    for (int i = 0; i < omp_get_max_threads(); i++) tokenizers.push_back(of_reader);
    Preparation work = {tokenizers[0].end_of_text,
                        options.val_tokens,
                        {staged, prefix + "_val", options.shard_tokens},
                        {staged, prefix + "_train", options.shard_tokens}};
    if (options.is_chat) pack_examples(work, options);
    if (options.val_fraction > 0 && !options.is_chat)
        work.draw.emplace(tokenizers[0], draw_options(options, reader), [&](bool validates, auto tokens) {
            (validates ? work.val : work.train).add(tokens);
        });
    add_files(work, reader, tokenizers);
    if (work.draw) work.draw->finish();
    if (options.is_chat) finish_examples(work, options);
    note_left_out(reader);
    check_split(work, options, files[0]);
    work.val.finish();
    work.train.finish();
    check_new_shards(options, staged);
    if (options.before_replacing) options.before_replacing();
    const bool has_trained = was_trained(prefix);
    const std::set<std::string> replaced = replaced_shards(options, staged);
    // first: shards that it does not list are refused
    record_shards(prefix, tokenizers[0], staged.shards, replaced);
    staged.rename_all();
    remove_earlier_shards(options, replaced);
    if (!replaced.empty()) {
        sync_folder(options.out);
        record_shards(prefix, tokenizers[0], staged.shards, {});
    }
    if (parse_bpe(options.tokenizer))
        write_trained(of_reader, prefix);
    else if (has_trained)
        remove_trained(prefix, options);
    sync_folder(options.out);
    print_summary(work, tokenizers[0], now() - start);
}
