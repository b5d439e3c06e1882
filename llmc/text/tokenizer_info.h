// Which tokenizer made token shards or a model's training data. llm.c's files do not say, so JSON in their
// folder does: NAME.json for the shards (llmc/data/sidecar.h), run_%08d.json for a checkpoint. The
// tokenizer's file is copied to the same folder.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "llmc/text/tokenizer.h"

struct TokenizerInfo {
    std::string name;  // "bytes", or the file's name
    int vocab_size = 0;
    std::string checksum;            // of all tokens; the same for every file that holds them
    std::string file;                // path of the tokenizer's file; empty for bytes
    std::string chat_template = {};  // of questions and answers; may be empty
};

// "the tokenizer gpt2_tokenizer.bin (50257 tokens)"
std::string describe(const TokenizerInfo& info);

TokenizerInfo info_of(const Tokenizer& tokenizer);

// The JSON object that records the tokenizer in a file of this folder, and back. Throws Error, which names
// the JSON file, if the text is not one.
std::string tokenizer_info_to_json(const TokenizerInfo& info, const std::string& folder);
TokenizerInfo tokenizer_info_from_json(const std::string& text, const std::string& json_path);

// Copies the tokenizer to `path`, unless it is "bytes". Returns what to record, with the copy's path.
TokenizerInfo keep_tokenizer(const Tokenizer& tokenizer, const std::string& path);
// Whether the file is such a copy. Error if it is neither this nor JSON.
bool is_kept_tokenizer(const std::string& path);

// Gives the tokenizer, which has another one or none, the recorded template.
void take_chat_template(Tokenizer& tokenizer, const TokenizerInfo& info);

// --- finding the tokenizer again ---

// Opens the recorded tokenizer: from its file, or, if that is gone, from the usual places. None if no file
// with these tokens is there.
std::optional<Tokenizer> open_recorded_tokenizer(const TokenizerInfo& info);
