// Added tokens: texts that are one token each, such as <|user|>. They are found in a text before the rest is
// split and merged. The rules are those of Hugging Face's tokenizers, so that token ids are equal.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/text/pattern.h"

struct AddedToken {
    int id = 0;
    bool special = false;      // a mark such as end-of-text, not a word
    bool normalized = false;   // found only where no token without this flag is
    bool single_word = false;  // not next to a letter, digit or underscore
    bool lstrip = false;       // takes the white space before it
    bool rstrip = false;       // takes the white space after it
    bool line_ends = false;    // takes a line end before and one after it

    bool operator==(const AddedToken&) const = default;
};

// A part of a text: an added token, or the text between two of them.
struct TextPart {
    std::string_view text;
    int token = -1;  // -1: text
};

struct AddedTokenMatcher {
    // `tokens` has the bytes of each token id.
    AddedTokenMatcher(const std::vector<AddedToken>& added, const std::vector<std::string>& tokens);

    // The parts of the text, in order; none is empty. The white space that a token takes is part of it.
    std::vector<TextPart> split(std::string_view text) const;

    // Whether an added token reaches across this position of the text, or ends there.
    bool touches(std::string_view text, size_t position) const;

   private:
    using Entry = std::pair<const std::string, AddedToken>;
    struct Group {  // the tokens that are searched together
        std::map<std::string, AddedToken, std::less<>> entries;
        bool begins[256] = {};  // whether a token begins with this byte

        const Entry* longest_at(std::string_view text) const;
    };
    void split_with(const Group& group, std::string_view text, std::vector<TextPart>& parts) const;

    Group raw, normalized;
    size_t longest = 0;
    const Pattern white;  // a character of white space
    const Pattern word;   // of words: Unicode's letters, marks, digits and connectors, such as the underscore
};
