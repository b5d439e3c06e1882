// The corpus of stories (llmc/text/corpus.h) as a file, as make_corpus and train_gpt2 --text stories write
// it.
#pragma once
#include <cstdint>
#include <string>

struct CorpusOptions {
    std::string out;                  // the text file; its numbers go to the same name with .json
    std::string tokenizer = "bytes";  // that counts tokens, or a tokenizer's file
    uint64_t bytes = 0, stories = 0;  // at least so many
    uint64_t seed = 1;
    uint64_t val_tokens = 0;  // of the validation part, rounded up to whole stories
};

// Writes the corpus and its numbers, and prints both sizes and entropies. Returns the number of tokens in the
// validation part, as prepare_data --split-documents blank-line makes them.
uint64_t write_corpus(const CorpusOptions& options);
