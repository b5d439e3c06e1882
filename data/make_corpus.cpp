// make_corpus: the default corpus (llmc/corpus.h), any size, from a seed, and the exact loss of a perfect
// model on it.
//     make_corpus --out data/corpus.txt --bytes 4000000 --seed 1 --val-tokens 32768
// writes data/corpus.txt, to be tokenized by prepare_data --split-documents blank-line, and data/corpus.json
// with its tokens and nats. --check FILE reads stories instead, say those that a model wrote, and tells how
// many of them the grammar could have written.
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/command_line.h"
#include "llmc/corpus.h"
#include "llmc/error.h"
#include "llmc/file.h"
#include "llmc/tokenizer.h"

struct Options {
    std::string out, check, tokenizer = "bytes";
    uint64_t bytes = 0, stories = 0, seed = 1, val_tokens = 0;
};

// What a part of the corpus holds. Tokens are counted as prepare_data makes them: end-of-text stands before
// the text and after each story; that costs a perfect model nothing, since a story tells where it ends.
struct Tally {
    uint64_t bytes = 0, tokens = 0, stories = 0;
    double nats = 0;
    double nats_per_token() const { return nats / double(tokens); }
    double nats_per_byte() const { return nats / double(bytes); }
};

static void print_tally(const char* what, const Tally& tally) {
    printf("%s: %llu stories, %llu bytes, %llu tokens, floor %.5f nats a token (%.5f a byte)\n", what,
           (unsigned long long)tally.stories, (unsigned long long)tally.bytes,
           (unsigned long long)tally.tokens, tally.nats_per_token(), tally.nats_per_byte());
}

static void put_tally(nlohmann::ordered_json& json, const std::string& prefix, const Tally& tally) {
    json[prefix + "bytes"] = tally.bytes;
    json[prefix + "tokens"] = tally.tokens;
    json[prefix + "stories"] = tally.stories;
    json[prefix + "nats"] = tally.nats;
    json[prefix + "nats_per_token"] = tally.nats_per_token();
    json[prefix + "nats_per_byte"] = tally.nats_per_byte();
}

// The validation part is the first stories that have val_tokens tokens together: whole ones, so that its nats
// are exact. Its first token is the end-of-text at the start; the one after its last story begins the
// training part.
static void make(const Options& options) {
    std::filesystem::path json_path = std::filesystem::path(options.out).replace_extension(".json");
    if (json_path == options.out)
        fail("--out %s: this name is for the corpus's numbers", options.out.c_str());
    Tokenizer tokenizer = open_tokenizer(options.tokenizer);
    std::mt19937_64 random(options.seed);
    FileWriter file(options.out);
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

    nlohmann::ordered_json json = {{"seed", options.seed}, {"tokenizer", options.tokenizer}};
    put_tally(json, "", whole);
    if (validation.stories > 0) put_tally(json, "val_", validation);
    write_whole_file(json_path.string(), {json.dump(2), "\n"});
    print_tally(options.out.c_str(), whole);
    if (validation.stories > 0) print_tally("validation part", validation);
}

// A text's stories end with blank lines; what follows the last one is a story cut short and does not count.
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
    printf("%s: %llu of %llu stories are the grammar's", path.c_str(), (unsigned long long)good,
           (unsigned long long)stories);
    if (good > 0) printf(", with %.5f nats a byte", nats / double(bytes));
    printf("%s\n", first_fault.c_str());
}

int main(int argc, char** argv) {
    Options options;
    CLI::App app("Writes stories whose exact entropy is known, or checks whether stories are such ones.",
                 "make_corpus");
    app.add_option("--out", options.out, "text file to write; its numbers go beside it, named .json");
    app.add_option("--bytes", options.bytes, "at least so many bytes")->check(CLI::NonNegativeNumber);
    app.add_option("--stories", options.stories, "at least so many stories")->check(CLI::NonNegativeNumber);
    app.add_option("--seed", options.seed, "the same seed gives the same text (1)")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--tokenizer", options.tokenizer,
                   "what to count tokens with: a file, or bytes (the default)");
    app.add_option("--val-tokens", options.val_tokens,
                   "size of the validation part, rounded up to whole stories (0)")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--check", options.check, "text file whose stories are to be checked");
    return run_command_line(app, argc, argv, [&] {
        if (!options.check.empty()) return check(options.check);
        if (options.out.empty()) fail("--out FILE is needed");
        if (options.bytes == 0 && options.stories == 0) fail("--bytes N or --stories N is needed");
        make(options);
    });
}
