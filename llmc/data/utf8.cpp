#include "llmc/data/utf8.h"

#include <algorithm>

#include "llmc/base/error.h"

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

void append_character(std::string& text, uint32_t c) {
    const auto byte = [&](uint32_t value) { text += char(value); };
    const auto rest = [&](int shift) { byte(0x80 | ((c >> shift) & 0x3f)); };
    if (c < 0x80) return byte(c);
    if (c < 0x800) return byte(0xc0 | (c >> 6)), rest(0);
    if (c < 0x10000) return byte(0xe0 | (c >> 12)), rest(6), rest(0);
    byte(0xf0 | (c >> 18)), rest(12), rest(6), rest(0);
}

size_t find_not_utf8(std::string_view text) {
    const size_t valid = Pattern("").valid_prefix(text);
    return valid < text.size() ? valid : text.npos;
}

Pattern::Pattern(const std::string& pattern) {
    int error = 0;
    size_t where = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                         PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &where, nullptr);
    if (!code) fail("PCRE2 rejects a pattern (error %d): it was built without Unicode", error);
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without JIT, matching is slower but gives the same
    data = pcre2_match_data_create(1, nullptr);
    if (!data) fail("out of memory for a pattern");
}

Pattern::~Pattern() {
    pcre2_match_data_free(data);
    pcre2_code_free(code);
}

int Pattern::run(std::string_view text, size_t start, uint32_t options) const {
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start, options, data,
                       nullptr);
}

size_t Pattern::match(std::string_view text, size_t start) const {
    const int result = run(text, start, PCRE2_NO_UTF_CHECK);
    if (result == PCRE2_ERROR_NOMATCH) return text.npos;
    if (result < 0) fail("PCRE2 error %d while matching text", result);
    return pcre2_get_ovector_pointer(data)[1];
}

bool Pattern::begins(std::string_view text) const {
    return !text.empty() && run(text.substr(0, character_length(uint8_t(text[0]))), 0, 0) > 0;
}

size_t Pattern::valid_prefix(std::string_view text) const {
    const int result = run(text, 0, 0);
    const bool invalid = result <= PCRE2_ERROR_UTF8_ERR1 && result >= PCRE2_ERROR_UTF8_ERR21;
    return invalid ? pcre2_get_startchar(data) : text.size();
}
