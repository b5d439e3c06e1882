// README.md of an exported model: a model card as Hugging Face's hub reads it, with what is known of the run.
#pragma once
#include <string>

#include "llmc/files/model_source.h"

// tokenizer: null if none is known. Of the run's options and paths, only those appear that a reader needs:
// no folders of this machine.
std::string model_card(const std::string& name, const ModelSource& model, const ModelConfig& config,
                       const Tokenizer* tokenizer);

// Whether the text is a card that model_card() wrote.
bool is_model_card(const std::string& text);
