// GPT-2's vocabulary files, as published (vocab.bpe, encoder.json). Declared in tokenizer.h.
#include <algorithm>
#include <array>
#include <filesystem>
#include <unordered_map>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/data/tokenizer.h"

static std::string utf8(int code_point) {  // up to U+07FF, which is enough for these files
    if (code_point < 0x80) return std::string(1, char(code_point));
    return {char(0xc0 | code_point >> 6), char(0x80 | (code_point & 0x3f))};
}

// The published files are text, so they write every byte as a printable character: the printable bytes of
// Latin-1 as themselves, the other 68 bytes as U+0100, U+0101, ... in order.
static std::unordered_map<std::string, char> printable_to_byte() {
    std::unordered_map<std::string, char> bytes;
    int next = 0x100;
    for (int byte = 0; byte < 256; byte++) {
        bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
        bytes[utf8(printable ? byte : next++)] = char(byte);
    }
    return bytes;
}

// Converts a token from the files' spelling to its bytes.
std::string decode_printable(const std::string& text, const std::string& path) {
    static const std::unordered_map<std::string, char> bytes = printable_to_byte();
    std::string decoded;
    for (size_t i = 0, length; i < text.size(); i += length) {
        length = uint8_t(text[i]) < 0x80 ? 1 : 2;
        auto byte = bytes.find(text.substr(i, length));
        if (byte == bytes.end())
            fail("%s: token \"%s\" does not use GPT-2's spelling of bytes", path.c_str(), text.c_str());
        decoded += byte->second;
    }
    return decoded;
}

std::string encode_printable(const std::string& token) {
    static const std::array<std::string, 256> spelling = [] {
        std::array<std::string, 256> all;
        for (const auto& [text, byte] : printable_to_byte()) all[uint8_t(byte)] = text;
        return all;
    }();
    std::string text;
    for (char byte : token) text += spelling[uint8_t(byte)];
    return text;
}

// Checks that every merge makes the token whose id is the merge's rank; encoding from a tokenizer file relies
// on that.
static void check_merges(const Tokenizer& tokenizer, const std::vector<SpelledMerge>& merges,
                         const std::string& path) {
    int id = 256;
    for (const auto& [left, right] : merges) {
        const std::string merged = decode_printable(left + right, path);
        if (id >= tokenizer.end_of_text || tokenizer.tokens[id] != merged)
            fail("%s: merge %d does not give token %d: the two files do not match", path.c_str(), id - 255,
                 id);
        id++;
    }
    if (id != tokenizer.end_of_text)
        fail("%s has %d merges, but %d are needed: the two files do not match", path.c_str(), id - 256,
             tokenizer.end_of_text - 256);
}

// ids: token text -> id.
static Tokenizer tokenizer_of(const nlohmann::json& ids, const std::string& path) {
    if (!ids.is_object() || ids.empty()) fail("%s has no tokens", path.c_str());
    if (ids.size() > 65536) fail("%s has %zu tokens, more than 65536", path.c_str(), ids.size());
    Tokenizer tokenizer;
    tokenizer.name = path;
    tokenizer.tokens.resize(ids.size());
    for (const auto& [text, id] : ids.items()) {
        if (!id.is_number_unsigned() || id.get<uint64_t>() >= ids.size() ||
            !tokenizer.tokens[id.get<size_t>()].empty())
            fail("%s: the id of \"%s\" is not in 0 to %zu or is used twice", path.c_str(), text.c_str(),
                 ids.size() - 1);
        tokenizer.tokens[id.get<size_t>()] = decode_printable(text, path);
    }
    tokenizer.end_of_text = tokenizer.vocab_size() - 1;
    if (tokenizer.tokens.back() != "<|endoftext|>")
        fail("%s: its last token is not <|endoftext|>", path.c_str());
    return tokenizer;
}

Tokenizer make_gpt2_tokenizer(const std::string& vocab_path, const std::string& encoder_path) {
    Tokenizer tokenizer = tokenizer_of(
        parse_json_object(read_whole_file(encoder_path, max_json_bytes), encoder_path), encoder_path);
    check_merges(tokenizer, read_merges(read_whole_file(vocab_path, max_json_bytes), vocab_path), vocab_path);
    return tokenizer;
}
