// Which tokenizer made token shards or a model's training data. llm.c's files do not say, so JSON in their
// folder does: NAME.json for NAME_train*.bin and NAME_val*.bin, run_%08d.json for a checkpoint. The
// tokenizer's file is copied to the same folder.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "llmc/data/token_file.h"
#include "llmc/data/tokenizer.h"

struct TokenizerInfo {
    std::string name;  // "bytes", or the file's name
    int vocab_size = 0;
    std::string checksum;  // of all tokens; the same for every file that holds them
    std::string file;      // path of the tokenizer's file; empty for bytes
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

// --- shards: `prefix` is DIR/NAME ---

// Whether prepare_data or make_corpus has written the file, as NAME.json. Error if it is no JSON object.
bool is_sidecar(const std::string& path);

// Writes NAME.json, keeping its other members, with the shards and their checksums, and copies the tokenizer
// to NAME.tokenizer.
void record_shards(const std::string& prefix, const Tokenizer& tokenizer,
                   const std::vector<TokenShard>& shards);

// Error unless the shards, which match the pattern, are those that the NAME.json beside them lists, and none
// that matches is missing. Shards without such a list are accepted.
void check_listed_shards(const std::string& pattern, const std::vector<TokenShard>& shards);

// DIR/NAME.json of a shard DIR/NAME_train.bin or DIR/NAME_val_000001.bin; for other names DIR/NAME.bin.
std::string sidecar_of(const std::string& shard);

// The tokenizer of the shards that match the patterns; none if no sidecar says. Error if they differ.
std::optional<TokenizerInfo> tokenizer_of_shards(const std::vector<std::string>& patterns);

// Warns if these are likely to be the shards of plain bytes, read by a model with a larger vocabulary: no
// sidecar names their tokenizer, and none of the first tokens reaches 257.
void warn_of_bytes(const std::vector<TokenShard>& shards, int vocab_size);

// --- finding the tokenizer again ---

// Opens the recorded tokenizer: from its file, or, if that is gone, from the usual places. None if no file
// with these tokens is there.
std::optional<Tokenizer> open_recorded_tokenizer(const TokenizerInfo& info);
