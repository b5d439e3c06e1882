// Text to tokens and back: GPT-2's byte-level BPE from one llm.c tokenizer file, or plain bytes.
//     Tokenizer tokenizer = open_tokenizer("gpt2_tokenizer.bin");   // or "bytes"
//     std::vector<uint16_t> tokens; tokenizer.encode("Hello world", tokens);   // 15496 995
// The file holds only the bytes of each token; tokenizer.cpp recovers the merges that encoding needs from
// them.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/file.h"

struct BpeEncoder;

struct Tokenizer {
    std::vector<std::string> tokens;  // token id -> its bytes (1 to 255 of them, NUL possible)
    int end_of_text = 0;              // the id that separates documents; encode() never yields it
    std::string name;                 // "bytes" or the file's path, for messages

    Tokenizer();
    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;
    ~Tokenizer();

    int vocab_size() const { return int(tokens.size()); }

    // Returns the bytes of one token. Error if the id is out of range.
    const std::string& decode(int token) const;

    // Appends the text's tokens to out. Accepts any bytes: each byte that is not valid UTF-8 becomes one
    // token, and the text before and after it is encoded separately. "<|endoftext|>" in the text is ordinary
    // text. Decoding the tokens gives back the text, byte for byte. Not thread-safe.
    void encode(std::string_view text, std::vector<uint16_t>& out);

    // The pairs of tokens that BPE merges, in the order of its merges; none for plain bytes.
    struct Merge {
        int left, right, merged;
    };
    std::vector<Merge> merges();

   private:
    std::unique_ptr<BpeEncoder> encoder;  // built by the first encode(); decoding does not need it
};

// Opens "bytes" (tokens 0 to 255 are the bytes, 256 is end-of-text), a tokenizer file of version 1 or 2, or
// Hugging Face's tokenizer.json or vocab.json, with merges.txt beside it, of a tokenizer like GPT-2's. Error
// if the file is damaged or of another kind.
Tokenizer open_tokenizer(const std::string& name_or_path);

// Finds gpt2_tokenizer.bin in the current folder, in one of these folders, or in data/starter, where
// data/download.sh puts it. Empty if it is in none of them.
std::string usual_tokenizer(const std::vector<std::string>& folders);

// Writes a tokenizer file of version 2 (magic 20240328; then per token a length byte and the bytes).
void write_tokenizer(const Tokenizer& tokenizer, const std::string& path, Target target = Target::file);
// Whether the file begins as one. Error if it cannot be read.
bool is_tokenizer_file(const std::string& path);

// Makes GPT-2's tokenizer from the two files it was published as: vocab.bpe (merges, one pair per line) and
// encoder.json (token text -> id). Error if they are malformed or do not match.
Tokenizer make_gpt2_tokenizer(const std::string& vocab_path, const std::string& encoder_path);

// --- Hugging Face's files (gpt2_vocabulary.cpp) ---

// Reads tokenizer.json, or vocab.json and merges.txt in the same folder.
Tokenizer read_hugging_face_tokenizer(const std::string& path);

// A token as these files and GGUF spell it: each byte is one printable character.
std::string encode_printable(const std::string& token);

// --- writing them (tokenizer_export.cpp) ---

// All tokens as the files spell them, and the merges as "left right", in their order. Error if two tokens are
// spelled alike, which no file of other programs can express.
struct TokenTexts {
    std::vector<std::string> tokens, merges;
};
TokenTexts spell_tokens(Tokenizer& tokenizer);

// Writes tokenizer.json, vocab.json, merges.txt and tokenizer_config.json, which transformers' AutoTokenizer
// loads, to an existing folder. max_seq_len is the model's.
void write_hugging_face_tokenizer(const std::string& folder, Tokenizer& tokenizer, int max_seq_len);
