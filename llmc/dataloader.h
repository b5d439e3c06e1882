// Batches of tokens from llm.c's token shards (uint16 tokens after a 1024-byte header), in order or shuffled
// the way llm.c shuffles them, with a position that can be saved and restored exactly. The next batch is read
// while the program works on the last.
//
// A shard is drawn in samples of B*T tokens. What is left of each shard comes at the end of the epoch, after
// the last shard, so that an epoch draws every token; its last batch is filled up with the first tokens of
// the data.
#pragma once
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "llmc/random.h"
#include "llmc/token_file.h"

// Where a loader stands, with the fields of llm.c's optimizer state, and two that make it a position in
// tokens.
struct DataPosition {
    bool should_shuffle = false;
    uint64_t current_shard = 0;
    // The one to be drawn next; at the shard's end their number, and beyond it, in the last shard, in what is
    // left of all shards.
    uint64_t current_sample = 0;
    std::vector<int32_t> shard_indices;        // order of the shards; empty unless shuffled
    std::vector<int32_t> intra_shard_indices;  // order of the current shard's samples; empty unless shuffled
    Random shuffle_random{42};
    uint64_t sample_tokens =
        0;  // in a sample: B*T of the run that began this shard; 0: of the one that resumes
    uint64_t token_in_sample = 0;  // tokens of current_sample that were drawn already, after B*T changed
};

struct DataLoader {
    // Opens all shards that the glob pattern names (sorted), checks header and length of each, and stands
    // before the first batch. A shard too small for one batch is joined to its neighbour. Error if nothing
    // matches, a file is no token shard, or all of them together hold fewer than B*T + 1 tokens. Tokens must
    // be < vocab_size; this is checked as they are read.
    DataLoader(const std::string& pattern, int B, int T, int vocab_size, bool should_shuffle,
               uint64_t seed = 42);

    // The next B*T tokens into inputs (B,T), and the tokens one further on into targets (B,T). After the last
    // batch a new epoch begins (shuffled anew). Returns how many of the tokens are new in this epoch: all but
    // for its last batch, which ends with some of the data's first. Error names file and position of a token
    // >= vocab_size.
    int next_batch(int* inputs, int* targets);

    // Back to the first shard; where shuffled, a new epoch's order is drawn.
    void reset();

    // A run with another B or T may go on from a position: the rest of its shard is drawn in the order that
    // was begun. Error if the saved position does not fit these shards.
    const DataPosition& position() const { return at; }
    void resume(const DataPosition& position);

    uint64_t num_tokens() const { return tokens; }    // in all shards
    uint64_t num_batches() const { return batches; }  // in one epoch

    struct Shard {  // one file, or several small ones read as if they were one
        std::vector<TokenShard> files;
        uint64_t num_tokens = 0;
        // A sample takes one token more than it advances by.
        uint64_t num_samples(uint64_t sample_tokens) const {
            return num_tokens > 0 ? (num_tokens - 1) / sample_tokens : 0;
        }
    };
    struct Piece {  // inputs [first, first + count) of a shard
        uint64_t shard, first, count;
        bool operator==(const Piece&) const = default;
    };
    struct Batch {
        std::vector<int> inputs, targets;
    };
    using Shards = std::shared_ptr<const std::vector<Shard>>;
    const std::vector<Shard>& all_shards() const { return *shards; }

   private:
    uint64_t shard_number() const;
    uint64_t num_samples() const;
    uint64_t left_tokens() const;
    bool at_epoch_end() const;
    void start_shard();
    Piece take(uint64_t wanted);
    Piece take_left(uint64_t wanted);
    std::vector<Piece> take_batch(int& fresh);
    void read_ahead();

    Shards shards;
    uint64_t tokens = 0, batches = 0;
    uint64_t batch_tokens;  // B*T
    int vocab;
    DataPosition at;
    std::vector<Piece> ahead_pieces;  // of the batch that is being read; empty: none
    std::future<Batch> ahead;
};
