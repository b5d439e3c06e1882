// llm.c's token shards: 256 int32 of header (magic 20240520, version 1, number of tokens, zeros), then that
// many uint16 tokens, and nothing after them. Both the data preparation (writing) and the data loader
// (reading) use it.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

// A shard whose header and size have been checked.
struct TokenShard {
    std::string path;
    uint64_t tokens;
};

// The format counts tokens in an int32.
constexpr uint64_t max_shard_tokens = 0x7fffffff;

// Checks magic, version, token count and exact file size; throws Error naming the file and what is wrong with
// it.
TokenShard open_token_shard(const std::string& path);

// All shards that a glob pattern names, sorted by name, each checked as above; Error if there is none.
std::vector<TokenShard> open_token_shards(const std::string& pattern);

// Reads tokens [first, first + count) of the shard into out; throws Error when they are not all there.
void read_tokens(const TokenShard& shard, uint64_t first, uint64_t count, uint16_t* out);

// Error if one of the tokens, the first of which is number `first` of the shard, is not below vocab_size.
void check_tokens(const TokenShard& shard, uint64_t first, std::span<const uint16_t> tokens, int vocab_size);

// Writes count tokens as a shard, under a temporary name first; throws Error when that fails.
void write_token_shard(const std::string& path, const uint16_t* tokens, uint64_t count);
