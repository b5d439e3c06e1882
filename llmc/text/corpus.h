// The default corpus: short stories from a probabilistic grammar with known entropy. The stories are
// consistent: people keep their names, pronouns agree, things stay where they were put and with whoever got
// them, and numbers add up.
//
// The grammar is unambiguous. It is a program (corpus.cpp) that says fixed text and makes choices. Each
// choice says the text of its alternative at once, and no alternative of a choice is a prefix of another.
// Reading from left to right, the text therefore determines every choice, and its probability is the product
// of theirs. The sum of -ln p over the choices is the loss of a perfect model on the text. read_story()
// parses a text with the same grammar. It also checks, at each choice it reaches, that no alternative is a
// prefix of another.
#pragma once
#include <random>
#include <string>
#include <string_view>

struct Story {
    std::string text;  // one line and an empty line: ends with "\n\n", which occurs only there
    double nats;       // -ln of the probability that the grammar writes this story
    int choices;       // number of choices with more than one alternative
};

// Writes a story. The same generator state gives the same story on every platform.
Story write_story(std::mt19937_64& random);

// Parses the story that the text begins with. Error, naming the byte where the text leaves the grammar, if
// there is none.
Story read_story(std::string_view text);
