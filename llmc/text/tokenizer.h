// Text to tokens and back: byte-level BPE like GPT-2's, from llm.c's tokenizer file or Hugging Face's files,
// or plain bytes.
//     Tokenizer tokenizer = open_tokenizer("gpt2_tokenizer.bin");   // or "bytes", or a folder
//     std::vector<uint16_t> tokens; tokenizer.encode("Hello world", tokens);   // 15496 995
// llm.c's file holds only the bytes of each token; tokenizer.cpp recovers the merges that encoding needs from
// them. Hugging Face's files say more: added tokens, merges in any order, a space before the text.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/text/added_tokens.h"

struct BpeEncoder;

// Which texts of added tokens, such as "<|endoftext|>", become these tokens; the others are ordinary text. A
// separator of documents takes a line end before and after it.
enum class AddedTokens { none, all, separator, all_and_separator };

struct Tokenizer {
    // A pair of tokens that BPE merges.
    struct Merge {
        int left, right, merged;
        bool operator==(const Merge&) const = default;
    };

    std::vector<std::string> tokens;  // token id -> its bytes (in llm.c's file 1 to 255, NUL possible)
    int end_of_text = 0;              // the id that separates documents
    std::string name;                 // "bytes" or the file's path, for messages

    // What only Hugging Face's files say; all empty for a tokenizer like GPT-2's.
    std::vector<AddedToken> added = {};                   // empty: end_of_text alone
    std::optional<std::vector<Merge>> given_merges = {};  // first ones first; none: recovered from the tokens
    bool add_prefix_space = false;                        // before a text that begins with another character
    std::string hugging_face_files = {};                  // as a copy keeps them: hugging_face_tokenizer.cpp
    std::string roles = {};                               // of tokens, for an export: tokenizer_roles.h
    std::string template_name = {};  // of the chat template, for messages; empty: it is the tokenizer's own

    // If it is set, encode() gives each word of a text to it, instead of the word's tokens to `out`.
    std::function<void(std::string_view word)> on_word = nullptr;

    int vocab_size() const { return int(tokens.size()); }
    bool is_special(int token) const;  // a mark, such as end-of-text
    bool is_bytes() const { return name == "bytes"; }

    // Returns the bytes of one token. Error if the id is out of range.
    const std::string& decode(int token) const;

    // Appends the text's tokens to out. Accepts any bytes: each byte that is not valid UTF-8 becomes one
    // token, and the text before and after it is encoded separately. Decoding the tokens gives back the text,
    // byte for byte, unless the tokenizer puts a space before it or added tokens take white space. Not
    // thread-safe.
    void encode(std::string_view text, std::vector<uint16_t>& out, AddedTokens found = AddedTokens::none);

    // Finds the texts of added tokens; null for AddedTokens::none. Valid as long as the tokenizer.
    const AddedTokenMatcher* matcher(AddedTokens found);

    // The pairs of tokens that BPE merges, in the order of its merges; none for plain bytes.
    std::vector<Merge> merges();

   private:
    void encode_text(std::string_view text, std::vector<uint16_t>& out);

    // What the first encode() and the first search build. A copy, such as that of another thread, has its
    // own.
    struct Built {
        std::shared_ptr<BpeEncoder> encoder = nullptr;        // shared, since the type is incomplete
        std::unique_ptr<AddedTokenMatcher> matchers[4] = {};  // of each AddedTokens but none

        Built() = default;
        Built(const Built&) {}
        Built(Built&&) = default;
        Built& operator=(Built&&) = default;
    };
    Built built;
};

// Whether llm.c's file can hold all of the tokenizer.
bool fits_tokenizer_file(const Tokenizer& tokenizer);

// Opens "bytes" (tokens 0 to 255 are the bytes, 256 is end-of-text), llm.c's tokenizer file of version 1 or
// 2, or Hugging Face's files of a byte-level BPE: tokenizer.json, vocab.json with merges.txt beside it, their
// folder, or a copy that keep_tokenizer() made. Error if a file is damaged, of another kind, or asks for
// something that this program does not do.
Tokenizer open_tokenizer(const std::string& name_or_path);

// Finds gpt2_tokenizer.bin in the current folder, in one of these folders, or in data/starter, where
// data/download.sh puts it. Empty if it is in none of them.
std::string usual_tokenizer(const std::vector<std::string>& folders);

// Writes a tokenizer file of version 2 (magic 20240328; then per token a length byte and the bytes).
void write_tokenizer(const Tokenizer& tokenizer, const std::string& path);
// Whether the file begins as one. Error if it cannot be read.
bool is_tokenizer_file(const std::string& path);

// --- Hugging Face's files ---

// open_tokenizer() of these files, and of those next to them that add tokens. Token ids are those of the
// library transformers; what this program does not do is an Error that names it.
Tokenizer read_hugging_face_tokenizer(const std::string& path);

// A tokenizer with added tokens and given merges, as read_hugging_face_tokenizer() returns the same from a
// file.
Tokenizer finish_tokenizer(Tokenizer tokenizer);

// A token's bytes as these files and GGUF spell it, and back: each byte is one printable character. Error,
// which names the file, if a text is not one.
std::string decode_printable(const std::string& text, const std::string& path);
std::string encode_printable(const std::string& token);
// Whether a text is the spelling of a token that has other bytes.
bool is_spelling_of_others(const std::string& text);

// --- writing them (tokenizer_export.cpp) ---

// All tokens as the files spell them, and the merges as "left right", in their order. Error if two tokens are
// spelled alike, which no file of other programs can express.
struct TokenTexts {
    std::vector<std::string> tokens, merges;
};
TokenTexts spell_tokens(Tokenizer& tokenizer);

std::string text_of_tokenizer_json(Tokenizer& tokenizer);
// Whether the file is one. Error if it is no JSON object.
bool is_tokenizer_json(const std::string& path);

// Writes tokenizer.json, vocab.json, merges.txt and tokenizer_config.json, which transformers' AutoTokenizer
// loads, to an existing folder. max_seq_len is the model's.
void write_hugging_face_tokenizer(const std::string& folder, Tokenizer& tokenizer, int max_seq_len);
