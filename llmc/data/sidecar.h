// What prepare_data says of token shards in a file next to them: NAME.json for NAME_train*.bin and
// NAME_val*.bin names their tokenizer and lists them. `prefix` is DIR/NAME.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "llmc/data/token_file.h"
#include "llmc/text/tokenizer_info.h"

// Whether prepare_data or make_corpus has written the file, as NAME.json. Error if it is no JSON object.
bool is_sidecar(const std::string& path);

// Writes NAME.json, keeping its other members, with the shards and their checksums, and copies the tokenizer
// to NAME.tokenizer. `replaced`: earlier shards and masks that are not removed yet.
void record_shards(const std::string& prefix, const Tokenizer& tokenizer,
                   const std::vector<TokenShard>& shards, const std::set<std::string>& replaced);

// Error unless the shards, which match the pattern, are those that the NAME.json beside them lists, and none
// that matches is missing. Shards without such a list are accepted.
void check_listed_shards(const std::string& pattern, const std::vector<TokenShard>& shards);

// DIR/NAME.json of a shard DIR/NAME_train.bin or DIR/NAME_val_000001.bin; for other names DIR/NAME.bin.
std::string sidecar_of(const std::string& shard);

// The shards that NAME.json lists, those that it names as replaced, and their masks. Error if it is no JSON
// object.
std::set<std::string> own_shards(const std::string& prefix);

// The shard, or the file that a link leads to, if only that file has NAME.json or a mask in its folder.
std::string shard_itself(const std::string& shard);

// The tokenizer of the shards that match the patterns; none if no sidecar says. Error if they differ.
std::optional<TokenizerInfo> tokenizer_of_shards(const std::vector<std::string>& patterns);

// Warns if these are likely to be the shards of plain bytes, read by a model with a larger vocabulary: no
// sidecar names their tokenizer, and none of the first tokens reaches 257.
void warn_of_bytes(const std::vector<TokenShard>& shards, int vocab_size);
