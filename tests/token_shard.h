// Token shards of tests.
#pragma once
#include "llmc/data/token_file.h"

inline std::vector<uint16_t> read_shard(const std::string& path) {
    const TokenShard shard = open_token_shard(path);
    std::vector<uint16_t> tokens(shard.tokens);
    read_tokens(shard, 0, tokens.size(), tokens.data());
    return tokens;
}

// Writes a whole shard.
inline void write_token_shard(const std::string& path, const uint16_t* tokens, uint64_t count) {
    TokenShardWriter writer(path);
    writer.add(tokens, count);
    writer.finish();
}
