// Finds the tokenizer that belongs to a model.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "llmc/data/tokenizer.h"

// Opens the tokenizer of that name, as --tokenizer gives it. If the name is empty, looks for
// gpt2_tokenizer.bin in this folder, in the folders of these files and in data/starter; finding none is no
// error.
std::optional<Tokenizer> find_tokenizer(const std::string& name, const std::vector<std::string>& beside);

// Checks the tokenizer against the vocabulary of `model`. On a mismatch, throws Error if the tokenizer was
// asked for by name, and otherwise forgets it.
void match_tokenizer(std::optional<Tokenizer>& tokenizer, const std::string& name, int vocab_size,
                     const std::string& model);
