#include "llmc/text/word_splitter.h"

#include <algorithm>
#include <string>

#include "llmc/base/utf8.h"

static const uint32_t num_characters = 0x110000, first_surrogate = 0xd800, last_surrogate = 0xdfff;

WordSplitter::WordSplitter() : pages(num_characters / 256), whites(std::string("[") + white_space + "]+") {
    fill(ascii, 0);
}

// Characters of one class mostly come in runs, which take one match each.
void WordSplitter::fill(Page& page, uint32_t page_number) {
    page.fill(other);
    const uint32_t first = 256 * page_number;
    if (first >= first_surrogate && first <= last_surrogate) return;  // no characters of UTF-8
    std::string text;
    std::vector<uint32_t> starts;
    for (uint32_t code = first; code < first + 256; code++) {
        starts.push_back(uint32_t(text.size()));
        append_character(text, code);
    }
    for (size_t i = 0; i < page.size();) {
        size_t next = i + 1;
        for (const auto& [pattern, type] :
             {std::pair(&letters, letter), std::pair(&numbers, number), std::pair(&whites, white)})
            if (const size_t end = pattern->match(text, starts[i]); end != text.npos) {
                next = size_t(std::lower_bound(starts.begin(), starts.end(), end) - starts.begin());
                std::fill(page.begin() + ptrdiff_t(i), page.begin() + ptrdiff_t(next), type);
                break;
            }
        i = next;
    }
}

WordSplitter::Classified WordSplitter::classify(std::string_view text, size_t at) {
    const auto byte = [&](size_t i) { return uint32_t(uint8_t(text[at + i])); };
    const uint32_t first = byte(0);
    if (first < 0x80) return {ascii[first], 1};
    const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    uint32_t code = first & (0x7f >> bytes);
    for (size_t i = 1; i < bytes; i++) code = code << 6 | (byte(i) & 0x3f);
    std::unique_ptr<Page>& page = pages[code / 256];
    if (!page) fill(*(page = std::make_unique<Page>()), code / 256);
    return {(*page)[code % 256], bytes};
}

size_t WordSplitter::run_end(std::string_view text, size_t at, Class type) {
    while (at < text.size()) {
        const Classified next = classify(text, at);
        if (next.type != type) break;
        at += next.bytes;
    }
    return at;
}

// Length of the 's, 't, 're, 've, 'm, 'll or 'd that the text begins with; 0: none.
static size_t contraction(std::string_view text) {
    if (text.size() < 2 || text[0] != '\'') return 0;
    const char c = text[1], next = text.size() > 2 ? text[2] : ' ';
    if (c == 's' || c == 't' || c == 'm' || c == 'd') return 2;
    return ((c == 'r' || c == 'v') && next == 'e') || (c == 'l' && next == 'l') ? 3 : 0;
}

size_t WordSplitter::word_end(std::string_view text, size_t start) {
    if (const size_t length = contraction(text.substr(start))) return start + length;
    const size_t after_space = start + (text[start] == ' ');
    if (after_space < text.size()) {
        const Classified first = classify(text, after_space);
        if (first.type != white) return run_end(text, after_space + first.bytes, first.type);
    }
    // The last white space before a word belongs to the word, if it is a space, or is a word of its own.
    const size_t end = run_end(text, start, white);
    if (end == text.size()) return end;
    const size_t last = start + last_character(text.substr(start, end - start));
    return last > start ? last : end;
}
