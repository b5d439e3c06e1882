// Text files in blocks that several threads can tokenize independently: the concatenated tokens of the blocks
// are the tokens of the whole text. Files are plain text or JSONL, which has a JSON object on each line; some
// of its fields are the text of a document, or questions and answers. text_file.h says which files can be
// read.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/text/chat_template.h"
#include "llmc/text/pattern.h"
#include "llmc/text/text_file.h"
#include "llmc/text/tokenizer.h"

struct TextBlock {
    std::string path;
    std::string text;
    uint64_t first_line = 0;  // JSONL: number of its first line in the file, from 1 on
    uint64_t first_byte = 0;  // its offset in the file, decompressed
    bool begins_file = false;
};

// Where documents end, apart from ends of files. automatic: nowhere, but at blank lines for --text without
// --field. Lines end in LF or CRLF.
enum class DocumentSplit { automatic, none, blank_line, end_of_text };
inline const std::vector<std::string> document_split_names = {"auto", "none", "blank-line", "endoftext"};

// How files are read; prepare_data and train_gpt2 --text have these options.
struct TextOptions {
    std::vector<std::string> include = {};  // shell patterns of names in folders; empty: all files
    DocumentSplit split = DocumentSplit::automatic;
    std::vector<std::string> field = {};  // the files are JSONL, whose fields of these names hold the text
    bool skip_bad_lines = false;          // JSONL: leave out lines that have no such field
    bool special_tokens = false;
    bool as_text = false;            // plain text may be JSONL, which is refused otherwise
    std::string chat_template = "";  // a file with the template of questions and answers
    bool loss_on_questions = false;  // all of their tokens are targets, not those of answers alone

    // Files that were found in folders, and not named: such a file ends where it stops to be text. Set by
    // find_text().
    std::set<std::string> of_folders = {};
    bool is_of_mixture = false;  // whose options are for those of its sources that they fit
    // Fields of other sources: an Error on a line that has one.
    std::vector<std::string> unread = {};
    bool is_chat = false;           // JSONL of questions and answers: set by find_examples()
    std::string own_template = "";  // that the model to finetune has
    int pack_tokens = 1024;         // of the sequences into which they are packed
    bool is_jsonl() const { return is_chat || !field.empty(); }

    // The added tokens that are tokens, not text.
    AddedTokens found() const {
        const bool separates = split == DocumentSplit::end_of_text;
        if (special_tokens) return separates ? AddedTokens::all_and_separator : AddedTokens::all;
        return separates ? AddedTokens::separator : AddedTokens::none;
    }
};

// Whether the name is that of JSONL, which may be compressed.
bool is_named_jsonl(const std::string& file);

// Error if the first line of JSONL is wrong whatever the fields are.
void check_first_line(const std::string& file, bool skip_bad_lines);
// Whether a file begins with another text than questions and answers; false if only reading it all can tell.
bool is_without_examples(const std::string& file);
// Whether the files, without --field and --as-text, are questions and answers by the first of them: sets
// is_chat. Error if options contradict each other, or are for questions and answers, and there are none. A
// source of a mixture loses the options that are for other sources.
void find_examples(TextOptions& options, const std::vector<std::string>& files);

// Gives a tokenizer the template of --template, else the model's, else its own, else the built-in one.
void take_template(const TextOptions& options, Tokenizer& tokenizer);

// Reads files block by block, one file after the other.
struct TextReader {
    std::vector<std::string> paths;
    TextOptions options;
    size_t block_bytes = 256 << 10;  // approximate size of a block
    Tokenizer* tokenizer = nullptr;  // that encodes the blocks: blocks do not end within its added tokens

    // Files of folders whose rest was left out, and the first of them, and why.
    uint64_t left_out = 0;
    std::string first_left_out = {};

    // Error if a file cannot be opened or is not text.
    TextReader(const std::vector<std::string>& paths, const TextOptions& options);
    // False: everything is read. Error if a file cannot be read, or has 32 MiB without a safe cut: white
    // space after another character, or if tokens are bytes nearly anything, or for JSONL a line end.
    bool next(TextBlock& block);

    uint64_t bytes_read = 0;
    uint64_t total_bytes = 0;  // of all files; 0 if one of them is a pipe

   private:
    bool fill(TextBlock& block);
    bool leave_out_rest(TextBlock& block, size_t kept, const char* why);
    void close_file();
    size_t safe_cut(std::string_view text) const;

    const Pattern white{std::string("[") + white_space + "]"};
    size_t next_file = 0;
    std::unique_ptr<TextFile> file;
    uint64_t bytes_before = 0;  // of the files before this one
    std::string rest;           // text read beyond the last cut
    uint64_t next_line = 1;
    bool at_start = true, rest_left_out = false;
};

// The tokens of a block, with end-of-text before each document and, if the options ask for it, after each
// blank line, but never twice in a row.
struct EncodedBlock {
    std::vector<uint16_t> tokens;
    size_t not_utf8 = std::string::npos;  // plain text: find_not_utf8() of the block
    uint64_t text_bytes = 0;
    uint64_t skipped_lines = 0;            // JSONL with skip_bad_lines
    std::string first_skipped;             // what is wrong with the first of them, and where
    std::set<std::string> unread_fields;   // JSONL: names of those that hold something
    uint64_t unanswered = 0;               // examples that go on after the last answer
    uint64_t with_marks = 0;               // examples that have marks of the template in their texts
    std::string first_with_mark;           // which mark, and where
    uint64_t unused_marks = 0;             // texts of added tokens that were encoded as ordinary text
    int first_mark = -1;                   // the token of the first of them
    std::vector<EncodedExample> examples;  // questions and answers, instead of tokens
    bool begins_document = false;  // needs end-of-text before it, unless the previous block ended with one
};
EncodedBlock encode_block(const TextBlock& block, const TextOptions& options, Tokenizer& tokenizer);

// Tokens of the longest of the first examples of each file, with end-of-text; 0: they have none. The
// tokenizer has taken the template.
size_t longest_example(const TextOptions& options, const std::vector<std::string>& files,
                       Tokenizer& tokenizer);
