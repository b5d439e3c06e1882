// The tokens of train_gpt2 --text, in the folder `tokens` of the run.
#pragma once
#include "llmc/data/preparation.h"
#include "llmc/options/recipe.h"

struct Options;

// The text, or each source of a mixture, with its files and the bytes in them, decompressed. Error if one is
// missing, too short, or not text. Sees whether it is questions and answers, and how long sequences they
// need: o.of_text.
std::vector<PreparationOptions> find_texts(Options& o);

// About as many tokens as prepare_text() makes; writes nothing.
TextTokens plan_tokens(const Options& o, const std::vector<PreparationOptions>& sources);

// Prepares the tokens of o.text, unless they are there and the text has not changed. Returns whether they are
// staged: over an earlier run with other tokens, they are in a folder of their own until the run begins.
bool prepare_text(const Options& o, std::vector<PreparationOptions> sources);

// Whether the options name staged tokens.
bool has_staged_tokens(const Options& o);
// Moves them to the folder `tokens`, instead of those of an earlier run, which has moved and keeps its own.
// Removes staged tokens that the options do not name, of a start that failed.
void place_staged_tokens(const Options& o);
// Names the tokens in the folder `tokens` in the options that named them where they were staged.
void name_placed_tokens(Options& o);

// Error if the tokens of a resumed run are missing or damaged.
void check_tokens(const Options& o);

// Prints a note for each text of a resumed run that has changed since its tokens were prepared.
void note_changed_texts(const Options& o);

// The prepared tokens of a text that was planned. Error if they are missing.
TextTokens find_tokens(const Options& o, bool is_staged, const TextTokens& planned);
