// Finds the tokenizer that belongs to a model.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "llmc/data/tokenizer.h"

// Opens the tokenizer of that name, as --tokenizer gives it. If the name is empty, looks for
// gpt2_tokenizer.bin in this folder, in the folders of these files and in data/starter; finding none is no
// error.
std::optional<Tokenizer> find_tokenizer(const std::string& name, const std::vector<std::string>& neighbours);

// How a model's tokenizer was chosen: by --tokenizer, by a file that records it, or because it lies nearby.
enum class TokenizerChoice { asked, recorded, found };

// Checks the tokenizer against the vocabulary of `model`, which may be larger: the rest is padding, and is
// never sampled. Throws Error if it is smaller. A tokenizer that merely lies nearby is forgotten unless it
// fits up to padding to a multiple of 128.
void match_tokenizer(std::optional<Tokenizer>& tokenizer, TokenizerChoice choice, int vocab_size,
                     const std::string& model);
