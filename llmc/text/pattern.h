// Patterns of PCRE2 for text in UTF-8.
#pragma once
#include <pcre2.h>

#include <string>
#include <string_view>

#include "llmc/base/utf8.h"

// Unicode's white space, for a set of characters [...] in a pattern. PCRE2's \s also matches U+180E, which
// GPT-2's rule does not.
inline constexpr char white_space[] = "\\t-\\r\\x{85}\\p{Z}";

// A compiled pattern. Not thread-safe.
struct Pattern {
    // Error if PCRE2 was built without Unicode.
    explicit Pattern(const std::string& pattern);
    ~Pattern();
    Pattern(const Pattern&) = delete;
    Pattern& operator=(const Pattern&) = delete;

    // End of what matches at `start` of valid UTF-8; npos: nothing does.
    size_t match(std::string_view text, size_t start) const;
    // Whether it matches the first or the last character of any text.
    bool begins(std::string_view text) const;
    bool ends(std::string_view text) const {
        return !text.empty() && begins(text.substr(last_character(text)));
    }

   private:
    int run(std::string_view text, size_t start, uint32_t options) const;
    pcre2_code* code;
    pcre2_match_data* data;
};
