// The default corpus: short stories from a probabilistic grammar, whose exact entropy is known. People have
// names and keep them, pronouns agree, things stay where they were put and with whom they were given, numbers
// add up.
//
// Every text is derivable in one way only. The grammar is a program (corpus.cpp) that says fixed text and
// makes choices; each choice writes the text of its alternative at once, and no alternative of a choice
// begins with the whole text of another. So from left to right a reader knows at each choice which
// alternative was taken, and the text determines all choices. Its probability is then the product of theirs:
// -ln p of the text, summed over the choices, is what a perfect model would lose on it. read_story() is that
// reader: the same grammar, led by a text instead of by chance; it also checks that the alternatives of each
// choice it meets are as claimed.
#pragma once
#include <cstddef>
#include <random>
#include <string>
#include <string_view>

struct Story {
    std::string text;  // one line and an empty line: it ends with "\n\n", which occurs nowhere else in it
    double nats;       // -ln of the probability that the grammar writes just this story
    int choices;       // choices that had more than one alternative
};

// The next story; the same generator state gives the same story everywhere.
Story write_story(std::mt19937_64& random);

// The story that the text starts with. Throws Error, with the byte where it leaves the grammar, if there is
// none.
Story read_story(std::string_view text);
