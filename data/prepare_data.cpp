// prepare_data: text files to the token shards that train_gpt2 reads.
//     prepare_data --tokenizer gpt2_tokenizer.bin --split-documents blank-line --val-tokens 32768
//                  --out data --name shakespeare tinyshakespeare.txt
// writes data/shakespeare_val.bin and data/shakespeare_train.bin. With --make-tokenizer it instead makes
// gpt2_tokenizer.bin from the two files that GPT-2's vocabulary was published as.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>

#include "data/command_line.h"
#include "llmc/error.h"
#include "llmc/file.h"
#include "llmc/token_file.h"
#include "llmc/tokenizer.h"

struct Options {
    std::vector<std::string> files;
    std::string tokenizer = "bytes", out, name, split;
    uint64_t val_tokens = 0, shard_tokens = 100000000;
    std::string make_tokenizer, vocab, encoder;
};

// Collects tokens and writes them as PREFIX.bin or, when there are more than `limit`, as PREFIX_000000.bin
// and so on. The first shard waits in memory until it is known which.
struct ShardWriter {
    std::string prefix;
    uint64_t limit, total = 0;
    std::vector<uint16_t> waiting = {};
    std::vector<std::string> written = {};

    void flush(const std::string& path) {
        write_token_shard(path, waiting.data(), waiting.size());
        printf("%s: %zu tokens\n", path.c_str(), waiting.size());
        written.push_back(path);
        waiting.clear();
    }
    std::string numbered() const { return prefix + format_string("_%06zu.bin", written.size()); }

    void add(const uint16_t* tokens, size_t count) {
        total += count;
        while (count > 0) {
            if (waiting.size() == limit) flush(numbered());
            size_t some = std::min(count, size_t(limit - waiting.size()));
            waiting.insert(waiting.end(), tokens, tokens + some);
            tokens += some;
            count -= some;
        }
    }
    void finish() {
        if (total > 0) flush(written.empty() ? prefix + ".bin" : numbered());
    }
};

// Tokenizes texts as a stream: the first val_tokens tokens go to one writer, the others to the second.
struct Preparation {
    Tokenizer tokenizer;
    bool split_at_blank_lines;
    uint64_t val_tokens;
    ShardWriter val, train;
    int last_token = -1;
    uint64_t bytes = 0;
    std::vector<uint16_t> tokens = {};

    void add_tokens() {
        if (tokens.empty()) return;
        last_token = tokens.back();
        size_t for_val = size_t(std::min<uint64_t>(tokens.size(), val_tokens - val.total));
        val.add(tokens.data(), for_val);
        train.add(tokens.data() + for_val, tokens.size() - for_val);
        tokens.clear();
    }

    // One stretch of text, cut where the tokenizer cuts anyway (safe_cut).
    void add_text(std::string_view text) {
        bytes += text.size();
        while (split_at_blank_lines) {
            size_t blank_line = text.find("\n\n");
            if (blank_line == std::string_view::npos) break;
            tokenizer.encode(text.substr(0, blank_line + 2), tokens);
            tokens.push_back(uint16_t(tokenizer.end_of_text));
            text.remove_prefix(blank_line + 2);
        }
        tokenizer.encode(text, tokens);
        add_tokens();
    }
    void add_file(const std::string& path);
};

// Whether the text may end in white space, of Unicode's too; sure where it says no. Beyond ASCII that is
// U+0085 and U+00A0 (C2 85, C2 A0), a few characters that start with E1 or E2, and U+3000 (E3 80 80).
static bool may_end_in_white(std::string_view text) {
    auto byte = [&](size_t back) {
        return back <= text.size() ? uint8_t(text[text.size() - back]) : uint8_t(0);
    };
    if (byte(1) < 0x80) return byte(1) <= ' ';
    return byte(2) == 0xc2 || byte(3) == 0xe1 || byte(3) == 0xe2 ||
           (byte(3) == 0xe3 && byte(2) == 0x80 && byte(1) == 0x80);
}

// The last place to cut the text so that the parts' tokens, one after the other, are the whole's; 0 if there
// is none. Before white space that follows something else GPT-2's rule always cuts, whatever comes later, and
// no blank line spans that place.
static size_t safe_cut(std::string_view text) {
    for (size_t i = text.size(); i-- > 1;)
        if ((text[i] == ' ' || text[i] == '\n') && !may_end_in_white(text.substr(0, i))) return i;
    return 0;
}

// A file begins a document: it starts with end-of-text, unless the one before it ended with that.
void Preparation::add_file(const std::string& path) {
    const size_t block = 4 << 20, most = 1 << 30;
    File file = open_to_read(path);
    if (last_token != tokenizer.end_of_text) tokens.push_back(uint16_t(tokenizer.end_of_text));
    std::string text;
    for (size_t wanted = block;; wanted = std::min(2 * text.size() + block, most)) {
        size_t kept = text.size();
        text.resize(std::max(wanted, kept));
        size_t count = fread(&text[kept], 1, text.size() - kept, file.get());
        text.resize(kept + count);
        if (ferror(file.get())) fail("cannot read %s to its end", path.c_str());
        if (text.empty() || feof(file.get())) break;
        size_t cut = safe_cut(text);
        if (cut == 0 && text.size() >= most)
            fail("%s has %zu bytes without a space after a letter: is it text?", path.c_str(), text.size());
        add_text(std::string_view(text).substr(0, cut));
        text.erase(0, cut);
    }
    add_text(text);
}

// Deletes shards that an earlier run left under the same name, which a glob would mix with the new ones.
static void remove_stale_shards(const Options& options, const std::vector<std::string>& written) {
    std::set<std::filesystem::path> fresh(written.begin(), written.end());
    for (const auto& entry : std::filesystem::directory_iterator(options.out)) {
        std::string file = entry.path().filename().string();
        for (std::string part : {"_train", "_val"}) {
            std::string prefix = options.name + part;
            if (file.compare(0, prefix.size(), prefix) != 0 || fresh.count(entry.path())) continue;
            std::string rest = file.substr(prefix.size());
            bool numbered = rest.size() == 11 && rest[0] == '_' && rest.substr(7) == ".bin" &&
                            rest.find_first_not_of("0123456789", 1) == 7;
            if (rest == ".bin" || numbered) std::filesystem::remove(entry.path());
        }
    }
}

static void prepare(const Options& options) {
    if (options.files.empty()) fail("no text file is given");
    if (options.out.empty() || options.name.empty()) fail("--out DIR and --name NAME are needed");
    if (options.name.find('/') != std::string::npos)
        fail("--name %s: a name has no slash", options.name.c_str());
    if (options.shard_tokens < 1 || options.shard_tokens > max_shard_tokens)
        fail("--shard-tokens is %llu, not in 1 to %llu", (unsigned long long)options.shard_tokens,
             (unsigned long long)max_shard_tokens);
    for (const std::string& file : options.files)
        open_to_read(file);  // a missing one is reported before the work
    std::filesystem::create_directories(options.out);
    auto start = std::chrono::steady_clock::now();
    std::string prefix = (std::filesystem::path(options.out) / options.name).string();
    Preparation work = {open_tokenizer(options.tokenizer),
                        options.split == "blank-line",
                        options.val_tokens,
                        {prefix + "_val", options.shard_tokens},
                        {prefix + "_train", options.shard_tokens}};
    for (const std::string& file : options.files) work.add_file(file);
    if (work.bytes == 0) fail("%s: no text in it", options.files[0].c_str());
    if (work.train.total == 0)
        fail("all %llu tokens of the text fit into --val-tokens %llu: none are left to train on",
             (unsigned long long)work.val.total, (unsigned long long)options.val_tokens);
    work.val.finish();
    work.train.finish();
    std::vector<std::string> written = work.val.written;
    written.insert(written.end(), work.train.written.begin(), work.train.written.end());
    remove_stale_shards(options, written);
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    uint64_t total = work.val.total + work.train.total;
    printf("%llu bytes, %llu tokens, %.2f bytes a token, %.1f MB/s\n", (unsigned long long)work.bytes,
           (unsigned long long)total, double(work.bytes) / double(total),
           1e-6 * double(work.bytes) / seconds);
}

static void make_tokenizer(const Options& options) {
    if (options.vocab.empty() || options.encoder.empty())
        fail("--make-tokenizer needs --vocab vocab.bpe and --encoder encoder.json");
    if (!options.files.empty()) fail("--make-tokenizer takes no text file: %s", options.files[0].c_str());
    Tokenizer tokenizer = make_gpt2_tokenizer(options.vocab, options.encoder);
    write_tokenizer(tokenizer, options.make_tokenizer);
    printf("%s: %d tokens\n", options.make_tokenizer.c_str(), tokenizer.vocab_size());
}

int main(int argc, char** argv) {
    Options options;
    CLI::App app("Turns text files into token shards DIR/NAME_train.bin and DIR/NAME_val.bin.",
                 "prepare_data");
    app.add_option("FILE", options.files, "text files, each a document or more");
    app.add_option("--tokenizer", options.tokenizer, "tokenizer file, or bytes (the default)");
    app.add_option("--split-documents", options.split, "blank-line: end-of-text also after every blank line")
        ->check(CLI::IsMember({"blank-line"}));
    app.add_option("--val-tokens", options.val_tokens, "so many tokens at the start are for validation (0)")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--shard-tokens", options.shard_tokens, "most tokens of one shard (100000000)")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--out", options.out, "folder for the shards, made if missing");
    app.add_option("--name", options.name, "the shards' name");
    app.add_option("--make-tokenizer", options.make_tokenizer,
                   "write GPT-2's tokenizer file, and nothing else");
    app.add_option("--vocab", options.vocab, "vocab.bpe, for --make-tokenizer");
    app.add_option("--encoder", options.encoder, "encoder.json, for --make-tokenizer");
    return run_command_line(app, argc, argv, [&] {
        if (options.make_tokenizer.empty())
            prepare(options);
        else
            make_tokenizer(options);
    });
}
