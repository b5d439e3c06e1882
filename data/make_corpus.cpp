// make_corpus: writes the default corpus (data/corpus.h) in any size, from a seed, with its exact entropy:
// the loss of a perfect model.
//     make_corpus --out data/corpus.txt --bytes 4000000 --seed 1 --val-tokens 32768
// writes data/corpus.txt, which prepare_data --split-documents blank-line tokenizes, and data/corpus.json
// with the number of tokens and the entropy in nats. --check FILE reads stories, for instance a model's
// samples, and counts how many of them the grammar could have written.
#include <cmath>
#include <filesystem>
#include <optional>

#include "data/corpus.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/output.h"
#include "llmc/base/warning.h"
#include "llmc/data/tokenizer.h"
#include "llmc/data/tokenizer_info.h"
#include "llmc/program/command_line.h"
#include "llmc/program/start_program.h"

struct Options {
    std::string out, check, tokenizer = "bytes";
    uint64_t bytes = 0, stories = 0, seed = 1, val_tokens = 0;
};

// Size and entropy of a part of the corpus. Tokens are counted as prepare_data makes them, with end-of-text
// before the text and after each story. A perfect model predicts end-of-text with certainty, since stories
// show where they end.
struct Tally {
    uint64_t bytes = 0, tokens = 0, stories = 0;
    double nats = 0;
    double nats_per_token() const { return nats / double(tokens); }
    double nats_per_byte() const { return nats / double(bytes); }
};

static void print_tally(FILE* out, const std::string& what, const Tally& tally) {
    print_line(out, "%s: %llu stories, %llu bytes, %llu tokens, entropy %.5f nats per token (%.5f per byte)",
               what.c_str(), (unsigned long long)tally.stories, (unsigned long long)tally.bytes,
               (unsigned long long)tally.tokens, tally.nats_per_token(), tally.nats_per_byte());
}

static void put_tally(JsonMembers& members, const std::string& prefix, const Tally& tally) {
    members.push_back({prefix + "bytes", tally.bytes});
    members.push_back({prefix + "tokens", tally.tokens});
    members.push_back({prefix + "stories", tally.stories});
    members.push_back({prefix + "nats", tally.nats});
    members.push_back({prefix + "nats_per_token", tally.nats_per_token()});
    members.push_back({prefix + "nats_per_byte", tally.nats_per_byte()});
}

static bool begins_with_a_story(const std::string& path) {
    const File file = open_to_read(path);
    std::string head(1 << 14, '\0');
    head.resize(fread(head.data(), 1, head.size(), file.get()));
    read_story(head.substr(0, head.find("\n\n") + 2));  // throws Error if it is none
    return true;
}

// The corpus's numbers, in NAME.json; keeps what prepare_data says there about its shards.
static std::string numbers_text(const std::string& path, JsonMembers members) {
    const std::string before = file_exists(path) ? read_whole_file(path, max_json_bytes) : "{}";
    const nlohmann::json earlier = parse_json_object(before, path);
    for (const auto& [name, value] : earlier.items())
        if (value.is_structured()) members.push_back({name, value});
    return json_text(members, 2) + "\n";
}

// The validation part is the first stories that together have val_tokens tokens. They are whole stories, so
// that the part's entropy is exact. Its first token is the end-of-text at the start. The end-of-text after
// its last story is the first token of the training part.
static void make(const Options& options) {
    std::filesystem::path json_path = std::filesystem::path(options.out).replace_extension(".json");
    if (json_path == options.out)
        fail("--out %s: .json is reserved for the corpus's numbers", options.out.c_str());
    check_output(options.out, {options.tokenizer}, begins_with_a_story);
    std::optional<FileWriter> numbers;  // only beside a file
    if (!is_written_in_place(options.out)) {
        check_output(json_path.string(), {options.tokenizer}, is_sidecar, Target::file);
        numbers.emplace(json_path.string());  // the first of both: another program cannot write either
    }
    Tokenizer tokenizer = open_tokenizer(options.tokenizer);
    std::mt19937_64 random(options.seed);
    FileWriter file(options.out, Target::named);
    Tally whole, validation;
    std::vector<uint16_t> tokens;
    while (whole.bytes < options.bytes || whole.stories < options.stories) {
        Story story = write_story(random);
        file.write(story.text);
        tokens.clear();
        tokenizer.encode(story.text, tokens);
        whole.bytes += story.text.size();
        whole.tokens += 1 + tokens.size();
        whole.stories += 1;
        whole.nats += story.nats;
        if (validation.tokens < options.val_tokens) validation = whole;
    }
    if (validation.tokens < options.val_tokens)
        fail(
            "the corpus has %llu tokens, fewer than --val-tokens %llu: make it larger with --bytes or "
            "--stories",
            (unsigned long long)whole.tokens, (unsigned long long)options.val_tokens);
    whole.tokens += 1;  // the end-of-text after the last story
    file.finish();

    JsonMembers members = {{"seed", options.seed}, {"tokenizer", printable(options.tokenizer)}};
    put_tally(members, "", whole);
    if (validation.stories > 0) put_tally(members, "val_", validation);
    if (numbers) {
        numbers->write(numbers_text(json_path.string(), members));
        numbers->finish();
    }
    FILE* const summary = is_same_file(options.out, "/dev/stdout") ? stderr : stdout;
    print_tally(summary, options.out, whole);
    if (validation.stories > 0) print_tally(summary, "validation part", validation);
}

// Stories end with blank lines. A truncated story after the last blank line does not count.
static void check(const std::string& path) {
    const std::string end_of_text = "<|endoftext|>";
    std::string text = read_whole_file(path), first_fault;
    uint64_t stories = 0, good = 0, bytes = 0;
    double nats = 0;
    for (size_t start = 0, end; (end = text.find("\n\n", start)) != std::string::npos; start = end + 2) {
        std::string story = text.substr(start, end + 2 - start);
        if (story.starts_with(end_of_text)) story.erase(0, end_of_text.size());
        stories++;
        try {
            nats += read_story(story).nats;
            bytes += story.size();
            good++;
        } catch (const Error& error) {
            if (first_fault.empty())
                first_fault = format_string("; story %llu is %s", (unsigned long long)stories, error.what());
        }
    }
    if (stories == 0) fail("%s has no story that ends with a blank line", path.c_str());
    const std::string rate = good > 0 ? format_string(", with %.5f nats per byte", nats / double(bytes)) : "";
    print_line(stdout, "%s: the grammar accepts %llu of %llu stories%s%s", path.c_str(),
               (unsigned long long)good, (unsigned long long)stories, rate.c_str(), first_fault.c_str());
}

int main(int argc, char** argv) {
    start_program(argv);
    Options options;
    CommandLine line(
        "make_corpus",
        "Writes stories whose exact entropy is known, or checks whether a text consists of them.");
    line.accept_cpu_as_device();
    line.add("--out", options.out, "text file to write; its numbers go beside it, named .json");
    line.add("--bytes", options.bytes, "minimum size in bytes");
    line.add("--stories", options.stories, "minimum number of stories");
    line.add("--seed", options.seed, "the same seed gives the same text (1)");
    line.add("--tokenizer", options.tokenizer,
             "tokenizer that counts tokens: a file, or bytes (the default)");
    line.add("--val-tokens", options.val_tokens,
             "size of the validation part, rounded up to whole stories (0)");
    line.add("--check", options.check, "text file whose stories to check");
    return line.run(argc, argv, [&] {
        if (!options.check.empty()) return check(options.check);
        if (options.out.empty()) fail("--out FILE is needed");
        if (options.bytes == 0 && options.stories == 0) fail("--bytes N or --stories N is needed");
        make(options);
    });
}
