// Questions and answers as sequences for training: the part for validation is drawn, and examples are packed
// into sequences of T tokens, none of which is cut if it fits. Of a longer one, the end of the question and
// the beginning of the answer stay.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "llmc/base/random.h"
#include "llmc/text/text_reader.h"

// Each example begins with end-of-text, which is a target if it ends the answer before it. What is left of a
// sequence is filled with end-of-text, which is none.
struct ExamplePacker {
    using Take = std::function<void(std::span<const uint16_t> tokens, const std::vector<bool>& targets)>;

    uint64_t T;
    uint16_t end_of_text;
    Take take = nullptr;
    uint64_t tokens = 0, examples = 0, cut = 0;
    bool follows_answer = false;  // the next token ends one

    void add(const EncodedExample& example);
    void end_sequence();  // fills it
    // Ends the last answer, and the last sequence with the token that its last target is.
    void finish();
    void put_ends(uint64_t count);
};

// What is printed of examples.
struct ExampleNotes {
    uint64_t cut = 0, unanswered = 0, with_marks = 0;
    std::string first_with_mark = "";

    void add(const EncodedBlock& block);  // but those that are cut
    // T tokens are in a sequence; a model may have no more positions than that.
    void print(int T, bool is_longest) const;
};

// One of about 1 / fraction different questions, at random but evenly over the text, is for validation, and
// so is an example that repeats its question.
struct ExampleDraw {
    double fraction = 0;
    Random random = Random(42);
    uint64_t questions = 0;
    uint64_t chosen = 0;                               // of the present block of questions
    std::unordered_map<std::string, bool> sides = {};  // of all of them

    bool validates(const EncodedExample& example);
};
