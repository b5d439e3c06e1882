// The model that -e names, for every program: a checkpoint (*.bin), a run's folder, Hugging Face's
// model.safetensors or its folder, or the descriptor of a new model.
#pragma once
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "llmc/model/model_config.h"
#include "llmc/text/text_reader.h"
#include "llmc/text/tokenizer_info.h"

struct ModelSource {
    std::string name;                        // as -e gives it, for messages
    std::string path;                        // of the model's file, or the descriptor
    bool is_file = false;                    // false: a new model
    std::optional<TokenizerInfo> tokenizer;  // that made its training data, if a file beside it says
    std::string chosen;                      // of a run's folder: a line that says which checkpoint it is
    bool has_unusable_tokenizer = false;     // a file beside it holds one that this program cannot read
    std::string run;                         // of a checkpoint of a run: the JSON object of its run file
    int positions = 0;                       // trained so far, as its run says; 0: all of the model's
    // How its training divided texts into documents; automatic: unknown.
    DocumentSplit split = DocumentSplit::automatic;

    // Otherwise a new model has as many positions as -t asks for.
    bool names_positions() const { return is_file || path.find("max_seq_len=") != path.npos; }
};

// Finds the model's file. Of a run's folder, this is the checkpoint with the lowest validation loss, or the
// newest one if none is known or if the name ends with ":last"; broken ones are reported on standard error. A
// checkpoint's file is verified against the checksum beside it. Throws Error if there is no such file, or if
// it is damaged.
ModelSource find_model(const std::string& name);

// Calls read(), which reads the model's file. A run that trains meanwhile may delete a checkpoint: if the
// file is gone, finds the model again and calls read() again.
void read_found_model(ModelSource& model, const std::function<void()>& read);

// The same for a model whose shape is known. Error if what is found again has another.
void read_same_model(ModelSource& model, const ModelConfig& config, const std::function<void()>& read);

// The model's shape, from its descriptor or its file. If the file is gone, `model` becomes the one that is
// found again.
ModelConfig read_shape(ModelSource& model);

// The value of an option in a run's JSON object, which is in the file `path`, of a list a line each; "" if it
// is not there or was not given.
std::string recorded_option(const nlohmann::json& run, const std::string& name, const std::string& path);

// The positions that may be used: those after the longest sequences of its training are still random.
int trained_positions(const ModelSource& model, const ModelConfig& config);

// Whether -e names a file, which need not exist, or a folder, rather than a new model.
bool names_model_file(const std::string& name);
// The same, for the -e of a run that has begun, by the name alone: its folder may be gone.
bool looks_like_model_file(const std::string& name);

// Throws Error, which names both, if the data's tokenizer is not the model's.
void check_data_fits(const TokenizerInfo& data, const std::string& data_name, const ModelSource& model,
                     const ModelConfig& config);

// The tokenizer for a model: --tokenizer's (`asked`, may be empty), else the recorded one, else bytes
// for a vocabulary of 257, else gpt2_tokenizer.bin in one of the usual places or beside `data`. None if there
// is no such file, if it does not fit, or if the model has an unusable one. Its vocabulary may be smaller
// than the model's. Throws Error if the tokenizer that was asked for is not the recorded one, or if its
// vocabulary is larger than the model's.
std::optional<Tokenizer> tokenizer_for(const std::string& asked, const ModelSource& model, int vocab_size,
                                       const std::optional<TokenizerInfo>& recorded,
                                       const std::string& data = "");
