// Prints text as it is decoded token by token. A token may end in the middle of a UTF-8 character; its bytes
// wait until the character is whole, because a terminal would show half a character as garbage.
#pragma once
#include <cstdio>
#include <string>
#include <string_view>

// Length of the longest prefix that does not end within a UTF-8 character. Each byte that is not UTF-8 counts
// as a character.
size_t whole_characters(std::string_view text);

struct TextStream {
    FILE* to = stdout;
    std::string waiting = {};  // the start of a character

    // Prints all whole characters and flushes. Error if writing fails, as on a full disk or a closed pipe.
    void write(std::string_view bytes);
    void finish();  // prints the bytes that still wait, at the end of the text
};
