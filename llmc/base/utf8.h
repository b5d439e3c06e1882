// The characters of text in UTF-8.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

// The character that the text, which is not empty, begins with, and its length in bytes; 0: not UTF-8.
struct Character {
    uint32_t code;
    size_t bytes;
};
Character first_character(std::string_view text);

// Length in bytes of a character, from its first byte; 1 for bytes that cannot begin one.
size_t character_length(uint8_t first);

// Where the last character of the text, which is not empty, begins.
size_t last_character(std::string_view text);

// Length of the text without the unfinished UTF-8 characters at its end. Each other byte that is not UTF-8
// counts as a character.
size_t whole_characters(std::string_view text);

// The characters that are whole within the first bytes of the text.
std::string first_characters(std::string_view text, size_t bytes);

void append_character(std::string& text, uint32_t code_point);

// The text with letters in lower case, as far as ranges of letters of Latin, Greek and Cyrillic go: for names
// of files where case does not count.
std::string fold_case(std::string_view text);

// Offset of the first byte that is not UTF-8; npos: there is none.
size_t find_not_utf8(std::string_view text);
