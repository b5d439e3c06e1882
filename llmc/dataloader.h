// Batches of tokens from llm.c's token shards (uint16 tokens after a 1024-byte header), in order or shuffled
// the way llm.c shuffles them, with a position that can be saved and restored exactly.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/random.h"
#include "llmc/token_file.h"

// Where a loader stands, with the fields of llm.c's optimizer state. A sample is one chunk of B*T tokens.
struct DataPosition {
    bool should_shuffle = false;
    uint64_t current_shard = 0;
    uint64_t current_sample = 0;               // the one to be drawn next; at the shard's end, their number
    std::vector<int32_t> shard_indices;        // order of the shards; empty unless shuffled
    std::vector<int32_t> intra_shard_indices;  // order of the current shard's samples; empty unless shuffled
    Random shuffle_random{42};
};

struct DataLoader {
    // Opens all shards that the glob pattern names (sorted), checks header and length of each, and stands
    // before the first batch. A shard too small for one batch is joined to its neighbour. Error if nothing
    // matches, a file is no token shard, or all of them together hold fewer than B*T + 1 tokens. Tokens must
    // be < vocab_size; this is checked as they are read.
    DataLoader(const std::string& pattern, int B, int T, int vocab_size, bool should_shuffle,
               uint64_t seed = 42);

    // The next B*T tokens into inputs (B,T), and the tokens one further on into targets (B,T). After the last
    // batch of the last shard a new epoch begins (shuffled anew). Error names file and position of a token >=
    // vocab_size.
    void next_batch(int* inputs, int* targets);

    // Back to the first shard; where shuffled, a new epoch's order is drawn.
    void reset();

    // Error if the saved position does not fit these shards and this batch size.
    const DataPosition& position() const { return at; }
    void resume(const DataPosition& position);

    uint64_t num_tokens() const { return tokens; }    // in all shards
    uint64_t num_batches() const { return batches; }  // in one epoch

    struct Shard {  // one file, or several small ones read as if they were one
        std::vector<TokenShard> files;
        uint64_t num_tokens = 0;
        uint64_t num_samples = 0;
    };

   private:
    const Shard& current() const;
    void start_shard();
    void read_range(uint64_t first);

    std::vector<Shard> shards;
    uint64_t tokens = 0, batches = 0;
    size_t batch_tokens;  // B*T
    int vocab;
    DataPosition at;
    std::vector<uint16_t> buffer;  // B*T + 1 tokens
};
