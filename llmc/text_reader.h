// Text files in blocks that can be tokenized independently of each other, and by several threads: each
// block's tokens, one after the other, are those of the whole. Files are plain text, or JSONL: a JSON object
// in each line, one field of which is the text of a document.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/file.h"
#include "llmc/tokenizer.h"

struct TextBlock {
    std::string path;  // of its file
    std::string text;
    uint64_t first_line = 0;  // JSONL: number of its first line, from 1 on
    uint64_t first_byte = 0;  // where it begins in its file
    bool begins_file = false;
};

// How blocks become tokens.
struct TextFormat {
    std::string field;                  // of JSONL's objects; empty: plain text
    bool split_at_blank_lines = false;  // a document ends after each
};

// The blocks of files, one file after the other.
struct TextReader {
    std::vector<std::string> paths;
    TextFormat format;
    size_t block_bytes = 4 << 20;  // of a block, about

    // Error where a file cannot be opened.
    TextReader(const std::vector<std::string>& paths, const TextFormat& format);
    // False: all is read. Error where a file cannot be read, or has 2^30 bytes with no place to cut.
    bool next(TextBlock& block);

    uint64_t bytes_read = 0;
    uint64_t total_bytes = 0;  // of all files; 0 where one is a pipe

   private:
    bool fill(TextBlock& block, std::string& text);

    size_t next_file = 0;
    File file;
    std::string rest;  // read, but behind the last cut
    uint64_t next_line = 1, next_byte = 0;
    bool at_start = true;
};

// The first byte of a text at which no character of UTF-8 begins, or the character NUL, which no text has and
// UTF-16 is full of; npos: it is UTF-8.
size_t find_not_utf8(std::string_view text);

// The tokens of blocks, in order, with end-of-text before each document and, where the format says so, after
// each blank line, but never twice in a row.
struct EncodedBlock {
    std::vector<uint16_t> tokens;
    size_t not_utf8 =
        std::string::npos;  // plain text: the first byte, counted in its block, that is not UTF-8
    uint64_t text_bytes = 0;
    bool begins_document = false;  // end-of-text belongs before it, unless it is there already
};
EncodedBlock encode_block(const TextBlock& block, const TextFormat& format, Tokenizer& tokenizer);
