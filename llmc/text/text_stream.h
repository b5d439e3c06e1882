// Prints text as it is decoded token by token. A token may end in the middle of a UTF-8 character; its bytes
// wait until the character is whole, because a terminal would show half a character as garbage. On a
// terminal, control characters, which could change its state, are shown escaped; pipes and files get every
// byte.
#pragma once
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/os.h"

struct TextStream {
    FILE* to = stdout;
    std::string waiting = {};       // the start of a character
    bool escape = is_terminal(to);  // prints printable_lines() of the text

    // Prints all whole characters and flushes. Error if writing fails, as on a full disk or a closed pipe.
    void write(std::string_view bytes);
    void finish() { print(waiting.size()); }  // at the end of the text
    void cut() { waiting.clear(); }           // where a text ends within a character, which is dropped

   private:
    void print(size_t bytes);  // of those that wait
};

// Ends a text before the first of some stop texts, which may begin in one token and end in another.
struct StopTexts {
    std::vector<std::string> stops = {};
    std::string waiting = {};  // may be the start of a stop text
    bool found = false;

    // Takes more of the text. Returns what is certain to come before a stop text.
    std::string add(std::string_view bytes);
    std::string finish();  // returns what still waits, at the end of the text
};
