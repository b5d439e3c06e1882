// make_gpt2_tokenizer: GPT-2's published vocabulary files turned into a Tokenizer. Declared in tokenizer.h.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "llmc/error.h"
#include "llmc/file.h"
#include "llmc/tokenizer.h"

static std::string utf8(int code_point) {  // up to U+07FF, all that the files use
    if (code_point < 0x80) return std::string(1, char(code_point));
    return {char(0xc0 | code_point >> 6), char(0x80 | (code_point & 0x3f))};
}

// The published files are text, so they stand every byte for a printable character: Latin-1's printable ones
// for themselves, the other 68 bytes for U+0100, U+0101, ... in order.
static std::unordered_map<std::string, char> printable_to_byte() {
    std::unordered_map<std::string, char> bytes;
    int next = 0x100;
    for (int byte = 0; byte < 256; byte++) {
        bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
        bytes[utf8(printable ? byte : next++)] = char(byte);
    }
    return bytes;
}

// A token as the files spell it -> its bytes.
static std::string decode_printable(const std::string& text, const std::string& path) {
    static const std::unordered_map<std::string, char> bytes = printable_to_byte();
    std::string decoded;
    for (size_t i = 0, length; i < text.size(); i += length) {
        length = uint8_t(text[i]) < 0x80 ? 1 : 2;
        auto byte = bytes.find(text.substr(i, length));
        if (byte == bytes.end())
            fail("%s: token \"%s\" is not spelled as GPT-2 does", path.c_str(), text.c_str());
        decoded += byte->second;
    }
    return decoded;
}

static nlohmann::json read_ids(const std::string& path) {
    std::string text = read_whole_file(path);
    nlohmann::json ids = nlohmann::json::parse(text, nullptr, false);
    if (!ids.is_object() || ids.empty())
        fail("%s is not a JSON object of tokens and their ids", path.c_str());
    if (ids.size() > 65536) fail("%s has %zu tokens, more than 65536", path.c_str(), ids.size());
    return ids;
}

// Every merge must have made the token whose id is its rank: that is what encoding from a tokenizer file
// rests on.
static void check_merges(const Tokenizer& tokenizer, const std::string& path) {
    std::string text = read_whole_file(path);
    size_t position = text.find('\n');  // the first line says the version
    if (text.compare(0, 9, "#version:") != 0 || position == std::string::npos)
        fail("%s is not a list of merges: it does not start with #version:", path.c_str());
    int id = 256;
    for (position++; position < text.size(); id++) {
        size_t end = std::min(text.find('\n', position), text.size());
        std::string line = text.substr(position, end - position);
        size_t space = line.find(' ');
        if (space == std::string::npos) fail("%s: line %d is no pair of tokens", path.c_str(), id - 254);
        std::string merged = decode_printable(line.substr(0, space) + line.substr(space + 1), path);
        if (id >= tokenizer.end_of_text || tokenizer.tokens[id] != merged)
            fail("%s: line %d does not make token %d: the two files do not belong together", path.c_str(),
                 id - 254, id);
        position = end + 1;
    }
    if (id != tokenizer.end_of_text)
        fail("%s has %d merges, %d are needed: the two files do not belong together", path.c_str(), id - 256,
             tokenizer.end_of_text - 256);
}

Tokenizer make_gpt2_tokenizer(const std::string& vocab_path, const std::string& encoder_path) {
    nlohmann::json ids = read_ids(encoder_path);
    Tokenizer tokenizer;
    tokenizer.name = encoder_path;
    tokenizer.tokens.resize(ids.size());
    for (const auto& [text, id] : ids.items()) {
        if (!id.is_number_unsigned() || id.get<uint64_t>() >= ids.size() ||
            !tokenizer.tokens[id.get<size_t>()].empty())
            fail("%s: the id of \"%s\" is not one of 0 to %zu, each used once", encoder_path.c_str(),
                 text.c_str(), ids.size() - 1);
        tokenizer.tokens[id.get<size_t>()] = decode_printable(text, encoder_path);
    }
    tokenizer.end_of_text = tokenizer.vocab_size() - 1;
    if (tokenizer.tokens.back() != "<|endoftext|>")
        fail("%s: its last token is not <|endoftext|>", encoder_path.c_str());
    check_merges(tokenizer, vocab_path);
    return tokenizer;
}
