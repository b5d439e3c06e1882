// Text to tokens and back: GPT-2's byte-level BPE out of one llm.c tokenizer file, or plain bytes.
//     Tokenizer tokenizer = open_tokenizer("gpt2_tokenizer.bin");   // or "bytes"
//     std::vector<uint16_t> tokens; tokenizer.encode("Hello world", tokens);   // 15496 995
// The file holds the tokens' bytes only; the merges that encoding needs are recovered from them
// (tokenizer.cpp).
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct BpeEncoder;

struct Tokenizer {
    std::vector<std::string> tokens;  // token id -> its bytes (1 to 255 of them, NUL possible)
    int end_of_text = 0;              // the id that separates documents; encode never yields it
    std::string name;                 // "bytes" or the file's path, for messages

    Tokenizer();
    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;
    ~Tokenizer();

    int vocab_size() const { return int(tokens.size()); }

    // The bytes of one token; throws Error when the id is out of range.
    const std::string& decode(int token) const;

    // Appends the text's tokens to out. Any bytes are accepted: those that are not valid UTF-8 become one
    // token each, and the text before and after them is encoded as if it stood alone. "<|endoftext|>" written
    // in the text is text. decode of the tokens gives back the text, byte for byte. Not for use by two
    // threads at once.
    void encode(std::string_view text, std::vector<uint16_t>& out);

   private:
    std::unique_ptr<BpeEncoder> encoder;  // built at the first encode: programs that only decode need none
};

// "bytes" (tokens 0 to 255 are the bytes, 256 is end-of-text) or the path of a tokenizer file of version 1
// or 2. Throws Error when the file is not exactly one.
Tokenizer open_tokenizer(const std::string& name_or_path);

// gpt2_tokenizer.bin where it usually lies: in the current folder, in one of these, or in data/starter, where
// data/download.sh puts it. Empty where it is in none of them.
std::string usual_tokenizer(const std::vector<std::string>& folders);

// Writes a tokenizer file of version 2 (magic 20240328; then per token a length byte and the bytes).
void write_tokenizer(const Tokenizer& tokenizer, const std::string& path);

// GPT-2's tokenizer from the two files it was published as: vocab.bpe (merges, one pair a line) and
// encoder.json (token text -> id). Throws Error where they are malformed or do not belong together.
Tokenizer make_gpt2_tokenizer(const std::string& vocab_path, const std::string& encoder_path);
