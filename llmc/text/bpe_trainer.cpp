#include "llmc/text/bpe_trainer.h"

#include <omp.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <exception>
#include <set>

#include "llmc/base/clock.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/utf8.h"
#include "llmc/text/bpe_merges.h"
#include "llmc/text/word_counts.h"

static const char* end_mark = "<|endoftext|>";
static const int num_bytes = 256, most_tokens = 65536;  // tokens are stored as uint16

std::optional<BpeOptions> parse_bpe(const std::string& name) {
    const std::string_view prefix = "bpe:";
    if (!name.starts_with(prefix)) return std::nullopt;
    BpeOptions options;
    const char *begin = name.data() + prefix.size(), *end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(begin, end, options.vocab_size);
    if (error != std::errc() || rest != end || options.vocab_size <= num_bytes ||
        options.vocab_size > most_tokens)
        fail("--tokenizer %s: give the number of tokens, %d to %d (ids have 16 bits), as in bpe:4096",
             name.c_str(), num_bytes + 1, most_tokens);
    return options;
}

double bytes_per_token(int vocab_size) {
    return vocab_size <= num_bytes + 1 ? 1 : 2.6 * std::pow(vocab_size / 4096.0, 0.16);
}

double bytes_of_token(const std::string& tokenizer) {
    const std::optional<BpeOptions> trained = parse_bpe(tokenizer);
    return tokenizer == "bytes" ? 1 : trained ? bytes_per_token(trained->vocab_size) : 4;
}

// --- the tokens to begin with ---

static std::vector<std::string> special_tokens(const BpeOptions& bpe) {
    std::vector<std::string> all = bpe.special_tokens;
    if (std::ranges::find(all, end_mark) == all.end()) all.insert(all.begin(), end_mark);
    std::set<std::string> known;
    for (const std::string& token : all) {
        const char* text = token.c_str();
        if (token.size() < 2 || token.size() > 255 || find_not_utf8(token) != token.npos)
            fail("--special-token '%s' does not have 2 to 255 bytes of UTF-8", printable(token).c_str());
        if (!known.insert(token).second) fail("--special-token '%s' is given twice", text);
        if (is_spelling_of_others(token))
            fail("--special-token '%s' is how files spell a token of other bytes: choose another", text);
    }
    if (int(all.size()) + num_bytes > bpe.vocab_size)
        fail("--tokenizer bpe:%d: %zu special tokens and the bytes are %zu tokens already", bpe.vocab_size,
             all.size(), all.size() + num_bytes);
    return all;
}

// Special tokens and bytes.
static Tokenizer first_tokens(const BpeOptions& bpe) {
    Tokenizer tokenizer;
    tokenizer.name = "bpe:" + std::to_string(bpe.vocab_size);
    tokenizer.tokens = special_tokens(bpe);
    for (size_t id = 0; id < tokenizer.tokens.size(); id++) {
        tokenizer.added.push_back({.id = int(id), .special = true});
        if (tokenizer.tokens[id] == end_mark) tokenizer.end_of_text = int(id);
    }
    std::vector<std::string> bytes;
    for (int byte = 0; byte < num_bytes; byte++) bytes.push_back(std::string(1, char(byte)));
    std::ranges::sort(bytes, {}, [](const std::string& byte) {  // UTF-8 sorts as its code points
        return encode_printable(byte);
    });
    tokenizer.tokens.insert(tokenizer.tokens.end(), bytes.begin(), bytes.end());
    tokenizer.given_merges.emplace();
    return tokenizer;
}

// --- counting words ---

// Threads read blocks one at a time and count their words in parallel.
struct WordReader {
    TextReader reader;
    const BpeOptions& bpe;
    WordCounts& counts;
    std::mutex reading = {};
    size_t blocks = 0, failed_block = SIZE_MAX;
    std::exception_ptr error = nullptr;  // of the first block that has one

    // The number of the block; none: there is no more.
    std::optional<size_t> next(TextBlock& block) {
        const std::lock_guard lock(reading);
        const size_t number = blocks++;
        if (!error) try {
                if (reader.next(block)) return number;
            } catch (...) {
                keep_error(number);
            }
        return std::nullopt;
    }
    void keep_error(size_t number) {
        if (number >= failed_block) return;
        failed_block = number;
        error = std::current_exception();
    }
    void count() {
        Tokenizer tokenizer = first_tokens(bpe);
        WordCounter counter(counts);
        tokenizer.on_word = [&](std::string_view word) {
            if (word.size() > 1) counter.add(word);  // others have no pair
        };
        TextBlock block;
        while (const std::optional<size_t> number = next(block)) try {
                encode_block(block, reader.options, tokenizer);
                counter.flush();
            } catch (...) {
                const std::lock_guard lock(reading);
                keep_error(*number);
            }
    }
};

static void refuse_pipes(const std::vector<std::string>& files) {
    for (const std::string& file : files)
        if (is_read_once(file))
            fail(
                "%s can be read once, but a tokenizer is trained before the text is encoded: save it in a "
                "file",
                file == "-" ? "standard input" : file.c_str());
}

// --- the tokenizer ---

// A pair that was merged twice counts where it came last.
static std::vector<Tokenizer::Merge> distinct_merges(const std::vector<LearnedMerge>& learned) {
    std::set<std::pair<int, int>> known;
    std::vector<Tokenizer::Merge> merges;
    for (size_t i = learned.size(); i-- > 0;)
        if (known.insert({learned[i].left, learned[i].right}).second)
            merges.push_back({learned[i].left, learned[i].right, learned[i].merged});
    std::ranges::reverse(merges);
    return merges;
}

static void learn(Tokenizer& tokenizer, WordCounts& counts, const BpeOptions& bpe) {
    BpeLearning learning = {.tokens = tokenizer.tokens,
                            .first_byte = int(tokenizer.added.size()),
                            .vocab_size = size_t(bpe.vocab_size),
                            .min_frequency = bpe.min_frequency,
                            .max_token_length = bpe.max_token_length};
    learn_merges(counts, learning);
    tokenizer.tokens = learning.tokens;
    tokenizer.given_merges = distinct_merges(learning.merges);
}

static void count_words(const TextsToRead& texts, const BpeOptions& bpe, WordCounts& counts) {
    refuse_pipes(texts.files);
    Tokenizer of_reader = first_tokens(bpe);
    WordReader words = {.reader = TextReader(texts.files, texts.options), .bpe = bpe, .counts = counts};
    words.reader.tokenizer = &of_reader;
    words.reader.block_bytes = 1 << 20;
#pragma omp parallel
    words.count();
    if (words.error) std::rethrow_exception(words.error);
}

Tokenizer train_tokenizer(const std::vector<TextsToRead>& texts, const BpeOptions& bpe) {
    const double start = now();
    Tokenizer tokenizer = first_tokens(bpe);
    WordCounts counts;
    for (const TextsToRead& some : texts) count_words(some, bpe, counts);
    const uint64_t total = counts.total(), distinct = counts.distinct();
    const double counted = now();
    learn(tokenizer, counts, bpe);
    print_line(
        stdout,
        "tokenizer: %d tokens from %llu words of two bytes or more, %llu of them distinct, in %.2f + %.2f s",
        tokenizer.vocab_size(), (unsigned long long)total, (unsigned long long)distinct, counted - start,
        now() - counted);
    if (tokenizer.vocab_size() < bpe.vocab_size)
        print_line(stdout,
                   "the text has no more pairs that occur %llu times, so the tokenizer has %d tokens, not %d",
                   (unsigned long long)bpe.min_frequency, tokenizer.vocab_size(), bpe.vocab_size);
    return finish_tokenizer(std::move(tokenizer));
}
