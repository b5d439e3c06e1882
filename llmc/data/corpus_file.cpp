#include "llmc/data/corpus_file.h"

#include <filesystem>
#include <optional>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/output.h"
#include "llmc/base/paths.h"
#include "llmc/base/utf8.h"
#include "llmc/data/sidecar.h"
#include "llmc/text/corpus.h"
#include "llmc/text/tokenizer.h"

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

// The corpus's numbers, in NAME.json; keeps what prepare_data says there about its shards.
static std::string numbers_text(const std::string& path, JsonMembers members) {
    const nlohmann::json earlier = file_exists(path) ? read_json_object(path) : nlohmann::json::object();
    for (const auto& [name, value] : earlier.items())
        if (value.is_structured()) members.push_back({name, value});
    return json_text(members, 2) + "\n";
}

// The validation part is the first stories that together have val_tokens tokens. They are whole stories, so
// that the part's entropy is exact. Its first token is the end-of-text at the start. The end-of-text after
// its last story is the first token of the training part.
uint64_t write_corpus(const CorpusOptions& options) {
    const std::string json_path = generic_text(std::filesystem::path(options.out).replace_extension(".json"));
    if (fold_case(json_path) == fold_case(options.out))
        fail("--out %s: .json is reserved for the corpus's numbers", options.out.c_str());
    check_output(options.out, {options.tokenizer}, [](const std::string& path) {
        const std::string head = first_bytes(path, 1 << 14);
        return !read_story(head.substr(0, head.find("\n\n") + 2)).text.empty();  // throws Error if it is none
    });
    std::optional<FileWriter> numbers;  // only beside a file
    if (!is_written_in_place(options.out)) {
        check_output(json_path, {options.tokenizer}, is_sidecar, Target::file);
        check_can_move(json_path);
        // the first of both files, so that another program cannot write either
        numbers.emplace(json_path);
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
        numbers->write(numbers_text(json_path, members));
        numbers->finish();
    }
    FILE* const summary = is_same_file(options.out, "/dev/stdout") ? stderr : stdout;
    print_tally(summary, options.out, whole);
    if (validation.stories > 0) print_tally(summary, "validation part", validation);
    return validation.tokens;
}
