#include "llmc/text/pattern.h"

#include "llmc/base/error.h"

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
