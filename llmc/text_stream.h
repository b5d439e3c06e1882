// Text that comes in pieces of bytes, as tokens decode to, printed as it comes but never within a character:
// a terminal would show half of one as rubbish.
#pragma once
#include <cstdio>
#include <string>
#include <string_view>

// Bytes at the start of the text that do not end within a UTF-8 character. Bytes that are not UTF-8 count as
// characters.
size_t whole_characters(std::string_view text);

struct TextStream {
    FILE* to = stdout;
    std::string waiting = {};  // the start of a character

    // Prints what is whole, and flushes. Error where the disk or the reader of a pipe refuses.
    void write(std::string_view bytes);
    void finish();  // prints what waits: the text ends within a character
};
