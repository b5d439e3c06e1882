// How GPT-2's vocabulary files spell bytes. Declared in tokenizer.h.
#include <array>
#include <optional>
#include <unordered_map>

#include "llmc/base/error.h"
#include "llmc/base/utf8.h"
#include "llmc/text/tokenizer.h"

// The published files are text, so they write every byte as a printable character: the printable bytes of
// Latin-1 as themselves, the other 68 bytes as U+0100, U+0101, ... in order.
static std::unordered_map<std::string, char> printable_to_byte() {
    std::unordered_map<std::string, char> bytes;
    int next = 0x100;
    for (int byte = 0; byte < 256; byte++) {
        bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
        std::string spelling;
        append_character(spelling, uint32_t(printable ? byte : next++));
        bytes[spelling] = char(byte);
    }
    return bytes;
}

static std::optional<std::string> find_bytes(const std::string& text) {
    static const std::unordered_map<std::string, char> bytes = printable_to_byte();
    std::string decoded;
    for (size_t i = 0, length; i < text.size(); i += length) {
        length = uint8_t(text[i]) < 0x80 ? 1 : 2;
        auto byte = bytes.find(text.substr(i, length));
        if (byte == bytes.end()) return std::nullopt;
        decoded += byte->second;
    }
    return decoded;
}

// Converts a token from the files' spelling to its bytes.
std::string decode_printable(const std::string& text, const std::string& path) {
    const std::optional<std::string> bytes = find_bytes(text);
    if (!bytes) fail("%s: token \"%s\" does not use GPT-2's spelling of bytes", path.c_str(), text.c_str());
    return *bytes;
}

bool is_spelling_of_others(const std::string& text) { return find_bytes(text).value_or(text) != text; }

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
