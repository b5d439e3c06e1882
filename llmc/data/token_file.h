// llm.c's token shards: a header of 256 int32 (magic 20240520, version 1, number of tokens, zeros), then that
// many uint16 tokens, and nothing after them. prepare_data writes them, the data loader reads them.
// Next to NAME.bin may be its mask NAME.mask: a header (magic 20260520, version 1, number of tokens, tokens
// of the sequences into which examples are packed or 0, zeros), then a bit per token, the lowest of a byte
// first. A token whose bit is 0 is no target: a question's.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/base/system_files.h"

// A shard whose header and size have been checked.
struct TokenShard {
    std::string path;
    uint64_t tokens;
    std::string checksum;  // of its content: all of a small file, samples of a large one; and of its mask
    FileStatus status = {};
    std::shared_ptr<const std::vector<uint8_t>> mask = {};  // the bits; null: all tokens are targets
    int packed = 0;  // tokens of the sequences into which its examples are packed; 0: unknown, or no examples

    bool cuts_examples(int T) const { return packed > 0 && T % packed != 0; }
};

// The format counts tokens in an int32.
constexpr uint64_t max_shard_tokens = 0x7fffffff;

// Whether the file begins as a shard. Error if it cannot be read.
bool is_token_shard(const std::string& path);

// Checks magic, version, token count and exact file size. Error if one of them is wrong. The checksum covers
// the header and all tokens of a file up to 1 MiB, else the header and four samples of 4 KiB.
TokenShard open_token_shard(const std::string& path);

// The paths that match a glob pattern, sorted by name; a single one as its folder lists it, since the names
// of shards say what belongs together.
std::vector<std::string> shard_paths(const std::string& pattern);

// Opens all shards that match a glob pattern, sorted by name, each checked as above and against the list of
// its preparation (tokenizer_info.h). Error if there is none.
std::vector<TokenShard> open_token_shards(const std::string& pattern);
// The same of several patterns, in their order.
std::vector<TokenShard> open_token_shards(const std::vector<std::string>& patterns);

// Tokens in all shards that match the patterns. Errors as of open_token_shards().
uint64_t count_tokens(const std::vector<std::string>& patterns);

// Reads tokens [first, first + count) of the shard into out. Error if the shard does not have them all, or if
// the file has been written or replaced since it was opened and its checksum is another.
void read_tokens(const TokenShard& shard, uint64_t first, uint64_t count, uint16_t* out);

// Makes those ignored_target that are no targets. `first` is the position of targets[0] in the shard.
void ignore_targets(const TokenShard& shard, uint64_t first, std::span<int> targets);

// What temporary names of complete shards end with.
constexpr std::string_view staged_suffix = ".vulkan-gpt2.new";

// NAME.mask of NAME.bin, also behind the staged_suffix.
std::string mask_of(const std::string& shard);
bool is_mask(const std::string& path);

// Error if a token is not below vocab_size. `first` is the position of tokens[0] in the shard.
void check_tokens(const TokenShard& shard, uint64_t first, std::span<const uint16_t> tokens, int vocab_size);

// Writes a shard piece by piece, and its mask, under temporary names, which finish() replaces. Without
// targets, all tokens are targets. Error if writing fails, or if there are more than max_shard_tokens.
struct TokenShardWriter {
    explicit TokenShardWriter(const std::string& path);
    void add(const uint16_t* tokens, uint64_t count, const std::vector<bool>& targets = {});
    void finish();

    FileWriter file;
    uint64_t tokens = 0;
    std::vector<uint8_t> mask = {};
    int packed = 0;  // for the mask's header
};
