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
#include <cstdint>
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

// --- the corpus as a file (corpus_file.cpp), as make_corpus and train_gpt2 --text stories write it ---

struct CorpusOptions {
    std::string out;                  // the text file; its numbers go to the same name with .json
    std::string tokenizer = "bytes";  // that counts tokens, or a tokenizer's file
    uint64_t bytes = 0, stories = 0;  // at least so many
    uint64_t seed = 1;
    uint64_t val_tokens = 0;  // of the validation part, rounded up to whole stories
};

// Writes the corpus and its numbers, and prints both sizes and entropies. Returns the number of tokens in the
// validation part, as prepare_data --split-documents blank-line makes them.
uint64_t write_corpus(const CorpusOptions& options);
