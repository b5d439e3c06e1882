// Turns text files into token shards, as prepare_data and train_gpt2 --text do. All threads tokenize; their
// number does not change the tokens.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

struct PreparationOptions {
    std::vector<std::string> files;    // texts, folders of them, or "-" for standard input
    std::string files_from;            // a file with more names, one per line; empty: none
    std::vector<std::string> include;  // shell patterns of names in folders; empty: all files
    std::string tokenizer = "bytes";   // or a tokenizer's file
    std::string out, name;             // the shards are OUT/NAME_train.bin and OUT/NAME_val.bin
    std::string split;                 // "blank-line", "endoftext", or empty: a file is a document
    std::string field;                 // the files are JSONL, whose field of this name holds the text
    uint64_t val_tokens = 0;           // the first so many tokens are for validation
    double val_fraction = 0;           // or this fraction of the documents, drawn with `seed`
    uint64_t shard_tokens = 100000000, seed = 42;
    bool skip_bad_lines = false, special_tokens = false, as_text = false;
};

// Writes the shards and NAME.json, which lists them, and prints a summary. The new shards replace earlier
// ones of the same name together, when all are complete. Error if an option or a file is wrong, or if a part
// has no tokens; earlier shards are then unchanged.
void prepare_tokens(const PreparationOptions& options);

// The files that would be read, with those in folders and of --files-from. Files in folders that are not text
// are left out. Error if a file is missing, or if there is none.
struct FoundText {
    std::vector<std::string> files;
    uint64_t left_out = 0;
    std::string first_left_out;  // and why
};
FoundText find_text(const PreparationOptions& options);
