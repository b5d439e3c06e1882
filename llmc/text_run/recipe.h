// The options of a run on a text, chosen from the number of its tokens: train_gpt2 --text.
#pragma once
#include <string>

#include "llmc/text_run/text_tokens.h"

// Lines of options (option_lines.h) for everything that a run on these tokens needs. Steps and what follows
// from them take the options that `o` gives into account; the caller ignores the lines of those options.
std::string choose_options(const Options& o, const TextTokens& tokens);
