// Token shards of tests.
#pragma once
#include "llmc/data/token_file.h"

// Writes a whole shard.
inline void write_token_shard(const std::string& path, const uint16_t* tokens, uint64_t count) {
    TokenShardWriter writer(path);
    writer.add(tokens, count);
    writer.finish();
}
