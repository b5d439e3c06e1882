// The tokens of train_gpt2 --text, in the folder `tokens` of the run, and the options chosen for them.
#pragma once
#include <cstdint>
#include <string>

struct Options;

struct TextTokens {
    std::string train, val;  // patterns, as -i and -j take them
    uint64_t train_tokens = 0, val_tokens = 0;
};

// About as many tokens as prepare_text() makes; writes nothing. Error if the text is missing, too short, or
// not text.
TextTokens plan_tokens(const Options& o);

// Prepares the tokens of o.text, unless they are there and the text has not changed. An earlier run on
// another text moves to a subfolder before.
void prepare_text(const Options& o);

// The prepared tokens. Error if they are missing.
TextTokens find_tokens(const Options& o);

// Lines of options (option_lines.h) for everything that a run on these tokens needs. Steps and what follows
// from them take the options that `o` gives into account; the caller ignores the lines of those options.
std::string choose_options(const Options& o, const TextTokens& tokens);
