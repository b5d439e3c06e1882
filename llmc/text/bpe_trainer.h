// Trains a tokenizer like GPT-2's on a text: byte-level BPE. Its merges are those of Hugging Face's
// BpeTrainer (tokenizers 0.23) with the pre-tokenizer ByteLevel: ids are the special tokens, then the bytes
// in the order of the characters that spell them, then merges, the most frequent pair first.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "llmc/text/text_reader.h"
#include "llmc/text/tokenizer.h"

struct BpeOptions {
    int vocab_size = 0;             // with special tokens and bytes
    uint64_t min_frequency = 2;     // of a pair that merges
    uint64_t max_token_length = 0;  // tokens that are made of others have fewer bytes; 0: no limit
    // Their ids begin at 0. <|endoftext|> comes first if it is not among them.
    std::vector<std::string> special_tokens = {};

    bool operator==(const BpeOptions&) const = default;
};

// The options of "bpe:4096"; none if the name of a tokenizer does not begin with "bpe:". Error if no size
// from 257 to 65536 follows.
std::optional<BpeOptions> parse_bpe(const std::string& name);

// About as many bytes as a token has: of a trained vocabulary of that size; of "bytes", "bpe:4096", or a
// file.
double bytes_per_token(int vocab_size);
double bytes_of_token(const std::string& tokenizer);

// Files that are read with the same options.
struct TextsToRead {
    std::vector<std::string> files;
    TextOptions options = {};
};

// Trains on all of the files, split into documents and words as they will be encoded. All threads take part;
// their number does not change the tokenizer. Error if the options or the files are wrong, or if a file can
// be read only once. A text with too few pairs gives a smaller vocabulary, which a line on standard output
// says, as it says how long it took.
Tokenizer train_tokenizer(const std::vector<TextsToRead>& texts, const BpeOptions& bpe);
