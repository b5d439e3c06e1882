// Models for other programs: a folder for Hugging Face's tools, a GGUF file for llama.cpp.
#pragma once
#include "llmc/files/model_source.h"
#include "llmc/files/stored_type.h"

struct ExportedModel {
    const ModelSource& source;
    const ModelConfig& config;
    const ReadTensor& read;
    Tokenizer* tokenizer;  // null: none is known
    StoredType type;
};

// Error unless the folder is new, empty, or an earlier export: no file of another model may stay beside the
// new ones, and nothing else is replaced. Hidden files do not count.
void check_export_folder(const std::string& folder);
// Error if there is a file that is not a GGUF file of a GPT-2: check_output().
void check_export_file(const std::string& path);

// Write the model and print what they wrote. Both throw Error as the checks above do. A folder
// that holds a file of this model's is refused, too.
void export_hugging_face(const std::string& folder, const ExportedModel& model);
void export_gguf(const std::string& path, const ExportedModel& model);

// --- its model card (model_card.cpp): the README.md of the folder, as Hugging Face's hub reads it ---

// What is known of the model and its run; tokenizer: null if none is known. Of the run's options and paths,
// only those appear that a reader needs: no folders of this machine.
std::string model_card(const std::string& name, const ModelSource& model, const ModelConfig& config,
                       const Tokenizer* tokenizer);

// Whether the text is a card that model_card() wrote.
bool is_model_card(const std::string& text);
