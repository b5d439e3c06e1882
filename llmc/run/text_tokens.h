// The tokens of train_gpt2 --text, in the folder `tokens` of the run.
#pragma once
#include "llmc/options/recipe.h"

struct Options;

// About as many tokens as prepare_text() makes; writes nothing. Error if the text is missing, too short, or
// not text.
TextTokens plan_tokens(const Options& o);

// Prepares the tokens of o.text, unless they are there and the text has not changed. An earlier run on
// another text moves to a subfolder before.
void prepare_text(const Options& o);

// The prepared tokens. Error if they are missing.
TextTokens find_tokens(const Options& o);
