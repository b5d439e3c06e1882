// Text in UTF-8: its characters, and patterns of PCRE2.
#pragma once
#include <pcre2.h>

#include <cstdint>
#include <string>
#include <string_view>

// Length in bytes of a character, from its first byte; 1 for bytes that cannot begin one.
size_t character_length(uint8_t first);

// Where the last character of the text, which is not empty, begins.
size_t last_character(std::string_view text);

void append_character(std::string& text, uint32_t code_point);

// Offset of the first byte that is not UTF-8; npos: there is none.
size_t find_not_utf8(std::string_view text);

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
    // Length of the text's longest valid UTF-8 prefix.
    size_t valid_prefix(std::string_view text) const;

   private:
    int run(std::string_view text, size_t start, uint32_t options) const;
    pcre2_code* code;
    pcre2_match_data* data;
};
