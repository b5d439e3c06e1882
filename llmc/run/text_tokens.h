// The tokens of train_gpt2 --text, in the folder `tokens` of the run.
#pragma once
#include "llmc/options/recipe.h"

struct Options;

// The bytes of the text, decompressed, or of each source of a mixture. Error if one is missing, too short, or
// not text. Sees whether it is questions and answers, and how long sequences they need: o.of_text.
std::vector<uint64_t> count_text_bytes(Options& o);

// About as many tokens as prepare_text() makes; writes nothing.
TextTokens plan_tokens(const Options& o, const std::vector<uint64_t>& text_bytes);

// Prepares the tokens of o.text, unless they are there and the text has not changed. An earlier run on
// another text moves to a subfolder before.
void prepare_text(const Options& o);

// The prepared tokens of a text that was planned. Error if they are missing.
TextTokens find_tokens(const Options& o, const TextTokens& planned = {});
