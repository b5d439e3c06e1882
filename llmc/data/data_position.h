// The position of a data loader in its shards, as checkpoints save it.
#pragma once
#include <cstdint>
#include <vector>

#include "llmc/base/random.h"

// The fields of llm.c's optimizer state, and three more: two make the position exact in tokens when B*T
// changes.
struct DataPosition {
    bool should_shuffle = false;
    uint64_t current_shard = 0;
    // The next sample to draw. At the end of a shard it equals the shard's number of samples; in the last
    // shard it counts on through the leftover tokens of all shards.
    uint64_t current_sample = 0;
    std::vector<int32_t> shard_indices;        // order of the shards; empty unless shuffled
    std::vector<int32_t> intra_shard_indices;  // order of the current shard's samples; empty unless shuffled
    Random shuffle_random{42};
    // Tokens in a sample: T of the run that began this shard if shuffled, otherwise its B*T. 0: unknown, as
    // in llm.c's files. The resuming run then takes its B*T, or its T if intra_shard_indices has another
    // length than B*T gives.
    uint64_t sample_tokens = 0;
    uint64_t token_in_sample = 0;  // tokens of current_sample already drawn, after B*T changed
    uint64_t first_token = 0;      // where each shard's samples begin in this epoch; 0 in llm.c's files
};
