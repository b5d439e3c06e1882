// GPT-2's split of text into words, which are encoded separately: the pattern
//     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// as a loop over the classes of characters, which PCRE2 tells. A word has any number of bytes.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "llmc/text/pattern.h"

// Not thread-safe: classes are looked up when a text first needs them.
struct WordSplitter {
    WordSplitter();

    // End of the word that begins at `start` of valid UTF-8.
    size_t word_end(std::string_view text, size_t start);

   private:
    enum Class : uint8_t { letter, number, white, other };
    using Page = std::array<Class, 256>;  // of 256 characters in a row

    struct Classified {
        Class type;
        size_t bytes;
    };
    Classified classify(std::string_view text, size_t at);
    size_t run_end(std::string_view text, size_t at, Class type);
    void fill(Page& page, uint32_t page_number);

    Page ascii;
    std::vector<std::unique_ptr<Page>> pages;
    const Pattern letters{"\\p{L}+"}, numbers{"\\p{N}+"}, whites;
};
