#include "llmc/base/utf8.h"

#include <cstring>

Character first_character(std::string_view text) {
    const uint8_t first = uint8_t(text[0]);
    if (first < 0x80) return {first, 1};
    const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return {0, 0};
    uint32_t code = first & (0x7f >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        if ((uint8_t(text[i]) & 0xc0) != 0x80) return {0, 0};
        code = code << 6 | (uint8_t(text[i]) & 0x3f);
    }
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const bool valid = code >= least[bytes] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
    return valid ? Character{code, bytes} : Character{0, 0};
}

size_t character_length(uint8_t first) {
    return first >= 0xf0 && first < 0xf8   ? 4
           : first >= 0xe0 && first < 0xf0 ? 3
           : first >= 0xc2 && first < 0xe0 ? 2
                                           : 1;
}

size_t last_character(std::string_view text) {
    size_t start = text.size() - 1;
    while (start > 0 && text.size() - start < 4 && (text[start] & 0xc0) == 0x80) start--;
    return start;
}

size_t whole_characters(std::string_view text) {
    while (!text.empty()) {
        const size_t last = last_character(text);
        if (last + character_length(uint8_t(text[last])) <= text.size()) break;
        text = text.substr(0, last);
    }
    return text.size();
}

std::string first_characters(std::string_view text, size_t bytes) {
    return std::string(text.substr(0, whole_characters(text.substr(0, bytes))));
}

void append_character(std::string& text, uint32_t c) {
    const auto byte = [&](uint32_t value) { text += char(value); };
    const auto rest = [&](int shift) { byte(0x80 | ((c >> shift) & 0x3f)); };
    if (c < 0x80) return byte(c);
    if (c < 0x800) return byte(0xc0 | (c >> 6)), rest(0);
    if (c < 0x10000) return byte(0xe0 | (c >> 12)), rest(6), rest(0);
    byte(0xf0 | (c >> 18)), rest(12), rest(6), rest(0);
}

size_t find_not_utf8(std::string_view text) {
    for (size_t i = 0;;) {
        for (uint64_t eight; i + sizeof eight <= text.size(); i += sizeof eight) {
            memcpy(&eight, &text[i], sizeof eight);
            if (eight & 0x8080808080808080) break;  // not all of them are ASCII
        }
        if (i == text.size()) return text.npos;
        const size_t bytes = first_character(text.substr(i)).bytes;
        if (bytes == 0) return i;
        i += bytes;
    }
}

std::string fold_case(std::string_view text) {
    std::string folded;
    while (!text.empty()) {
        const Character c = first_character(text);
        const auto is_in = [&](uint32_t first, uint32_t last) { return c.code >= first && c.code <= last; };
        const bool is_pair = is_in(0x100, 0x137) || is_in(0x14a, 0x177) || is_in(0x460, 0x4ff);
        const bool is_latin = is_in('A', 'Z') || (is_in(0xc0, 0xde) && c.code != 0xd7);
        const uint32_t lower = is_latin || is_in(0x391, 0x3a9) || is_in(0x410, 0x42f) ? c.code + 0x20
                               : is_in(0x400, 0x40f)                                  ? c.code + 0x50
                               : is_pair                                              ? c.code | 1
                                                                                      : c.code;
        if (c.bytes)
            append_character(folded, lower);
        else
            folded += text[0];
        text.remove_prefix(c.bytes ? c.bytes : 1);
    }
    return folded;
}
