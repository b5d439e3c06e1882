// Draws the validation part of a text from all of it: whole documents, or blocks of long ones.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "llmc/base/random.h"
#include "llmc/text/tokenizer.h"

struct DrawOptions {
    double fraction = 0;  // of the tokens, above 0, at most 0.5
    // A document of more than four times as many tokens is divided into blocks of at most so many, which end
    // with a line where possible, and never within a character. 0: a sixteenth of what is drawn, so that a
    // short text has enough of them, but 64 to 8192.
    size_t block_tokens = 0;
    double text_tokens = 0;  // about so many; 0: unknown, and the blocks grow with what was read
    uint64_t seed = 42;
};

// Takes the tokens of a text in order, in which end-of-text begins each document, and passes each document or
// block on as a part for training or for validation. Draws at random, but evenly over the text. The same text
// is never in both: a part that repeats an earlier one goes where that went, and once more is not validated.
struct ValidationDraw {
    using Take = std::function<void(bool validates, std::span<const uint16_t> tokens)>;

    ValidationDraw(const Tokenizer& tokenizer, const DrawOptions& options, Take take);
    void add(std::span<const uint16_t> tokens);
    void finish() { take_part(document.size()); }  // after the last tokens

    uint64_t parts = 0, drawn = 0;
    uint64_t repeats = 0;  // parts that are left out, since they repeat one that was drawn

   private:
    enum class Side { training, validation, nowhere };

    size_t block_tokens() const;
    size_t block_end() const;
    void take_part(size_t tokens);  // from the start of `document`
    Side choose(std::span<const uint16_t> part);
    uint64_t content_of(std::span<const uint16_t> part) const;

    const DrawOptions options;
    const Take take;
    const uint16_t end_of_text;
    struct TokenText {
        bool ends_line = false, begins_white = false, is_white = false, begins_character = true;
    };
    std::vector<TokenText> texts = {};  // of all tokens
    std::vector<uint16_t> document = {};
    Random random;
    double owed = 0;       // tokens that validation lacks of its fraction
    double threshold = 0;  // the next part is drawn when so many average parts are owed
    uint64_t seen = 0;     // tokens
    Side last = Side::nowhere;
    std::unordered_map<uint64_t, Side> sides = {};  // of parts that might have been drawn, by their content
};
