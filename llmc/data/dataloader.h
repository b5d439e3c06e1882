// Batches of tokens from llm.c's token shards, in order or shuffled, with a position that can be saved and
// restored exactly. The next batch is prefetched while the program works on the last one.
//
// A shard is drawn in samples: of B*T tokens if in order, of T if shuffled. So the sequences of a shuffled
// batch come from all over the shard, and their order is the same for every B. (llm.c shuffles samples of
// B*T, whose sequences are often of one document: docs/experiments.md.) From the second shuffled epoch on,
// samples begin at a random one of a shard's first T tokens, so that sequences are cut elsewhere each time;
// those of packed examples (with a mask) always begin at the first. The tokens left over at both ends of each
// shard are drawn at the end of the epoch, after the last shard, so an epoch draws every token. Its last
// batch is filled up with the first tokens of the data.
#pragma once
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "llmc/base/random.h"
#include "llmc/data/data_position.h"
#include "llmc/data/token_file.h"

// Sequences of a batch that a process takes.
struct SequenceRange {
    int first = 0, count = -1;  // -1: all of the batch
};

struct DataLoader {
    // Opens all shards that match the glob patterns (in their order, sorted by name), checks their headers
    // and lengths, and starts before the first batch. A shard too small for one batch is joined to its
    // neighbour. Error if nothing matches, a file is not a token shard, or all of them together hold fewer
    // than B*T + 1 tokens, unless a batch `may_repeat` them. Tokens must be < vocab_size; this is checked as
    // they are read.
    DataLoader(const std::vector<std::string>& patterns, int B, int T, int vocab_size, bool should_shuffle,
               uint64_t seed = 42, bool may_repeat = false);
    DataLoader(const std::string& pattern, int B, int T, int vocab_size, bool should_shuffle,
               uint64_t seed = 42)
        : DataLoader(std::vector{pattern}, B, T, vocab_size, should_shuffle, seed) {}

    // Copies the next B*T tokens into inputs (B,T), and the same shifted by one token into targets (B,T),
    // those that a mask rules out as ignored_target. After the last batch a new epoch begins (shuffled anew).
    // Returns how many of the tokens are new in this epoch: B*T except in the epoch's last batch, which may
    // end with tokens from the start of the data. Error, naming file and position, on a token >= vocab_size.
    // Several processes draw the same batches: each copies its sequences, and counts the new tokens in them.
    int next_batch(int* inputs, int* targets, const SequenceRange& own = {});

    void skip(uint64_t batches);  // draws them without reading

    // Returns to the first shard; when shuffling, draws a new epoch's order.
    void reset();

    // A run with another B or T may resume from a position: it draws the rest of the current shard in the
    // order already begun. Error if the saved position does not fit these shards.
    const DataPosition& position() const { return at; }
    void resume(const DataPosition& position);

    uint64_t num_tokens() const { return tokens; }    // in all shards
    uint64_t num_batches() const { return batches; }  // in one epoch

    struct Shard {  // one file, or several small ones read as if they were one
        std::vector<TokenShard> files;
        uint64_t num_tokens = 0;
        uint64_t num_targets() const { return num_tokens - (num_tokens > 0); }  // all but the first token
        uint64_t first_token(const DataPosition& of_run) const;                 // of its samples
        uint64_t num_samples(const DataPosition& of_run) const {
            return (num_targets() - first_token(of_run)) / of_run.sample_tokens;
        }
        // Tokens before its samples and behind them.
        uint64_t leftover_tokens(const DataPosition& of_run) const {
            return num_targets() - num_samples(of_run) * of_run.sample_tokens;
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

    bool prefetches = true;

   private:
    uint64_t shard_number() const;
    uint64_t token_at(uint64_t sample) const;
    uint64_t num_samples() const;
    uint64_t leftover_tokens() const;
    bool at_epoch_end() const;
    void start_epoch(uint64_t first_token);
    void start_shard();
    void advance(uint64_t count);
    Piece take(uint64_t wanted);
    Piece take_leftover(uint64_t wanted);
    std::vector<Piece> take_batch(int& fresh);
    void prefetch();

    Shards shards;
    uint64_t tokens = 0, batches = 0;
    int sequence_tokens;     // T
    uint64_t batch_tokens;   // B*T
    uint64_t sample_tokens;  // of the samples that are drawn: T if they are shuffled, otherwise B*T
    int vocab;
    DataPosition at;
    std::vector<Piece> prefetched_pieces;  // of the batch being prefetched; empty: none
    std::future<Batch> prefetched;
};
