// Turns text files into token shards, as prepare_data and train_gpt2 --text do. All threads tokenize; their
// number does not change the tokens.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "llmc/text/bpe_trainer.h"
#include "llmc/text/text_reader.h"

// The files that are read, with those in folders and of --files-from. What is no text in folders is left out.
struct FoundText {
    std::vector<std::string> files = {};
    uint64_t left_out = 0;
    std::string first_left_out = "";  // and why
};

struct PreparationOptions : TextOptions {
    std::vector<std::string> files;              // texts, folders of them, or "-" for standard input
    std::vector<std::string> files_from;         // files with more names, one per line
    std::string tokenizer = "bytes";             // a tokenizer's file, or "bpe:4096": trained on the text
    BpeOptions bpe = {};                         // of "bpe:4096"; the size is that of the name
    const Tokenizer* trained = nullptr;          // instead of training one on this text
    int most_positions = 0;                      // of the model to finetune; 0: any number
    std::string out, name;                       // the shards are OUT/NAME_train.bin and OUT/NAME_val.bin
    uint64_t val_tokens = 0;                     // the first so many tokens are for validation
    double val_fraction = 0;                     // or this fraction, drawn with `seed` from all of the text
    bool chooses_fraction = false;               // the fraction is no option
    uint64_t seen_bytes = 0, seen_articles = 0;  // " the ", at the beginnings of the files
    uint64_t text_bytes = 0;  // about so much text, decompressed; 0: the sizes of the files say it
    std::string text_checksum;  // of what is in the files
    uint64_t shard_tokens = 100000000, seed = 42;
    FoundText found = {};                              // as find_text() says; empty: not called yet
    std::function<void()> before_replacing = nullptr;  // called when the new shards are complete
};

// Writes the shards and NAME.json, which lists them, and prints a summary. A tokenizer that was trained is
// also written for other programs, as NAME_tokenizer.json and, if llm.c's file can hold it,
// NAME_tokenizer.bin. The new shards replace earlier ones of the same name together, when all are complete.
// Error if an option or a file is wrong, or if a part has no tokens; earlier shards are then unchanged.
void prepare_tokens(PreparationOptions options);

// Finds the files of options.files and options.files_from, and whether they are questions and answers. Error
// if a folder has no text, if no file is given, or if an option is for another kind of text.
void find_text(PreparationOptions& options);
// After find_text(): prints the first example as the model will see it.
void show_example(const PreparationOptions& options);
// Each prints a line if there is something.
void note_left_out(const PreparationOptions& options);
void note_left_out(const TextReader& reader);  // what ended early
// A line for each pattern of --include that chooses no file of any source, which is for mixtures.
void note_unused_include(const std::vector<std::string>& include,
                         std::span<const PreparationOptions> sources);
