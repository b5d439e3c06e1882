// The training data: one source, or several that are mixed by weight.
//
// Each sequence of a mixture comes from the source that lags most behind its share of the sequences before
// it. So the counts of sources are exact to one sequence at any time, and which sequences a step has depends
// on the seed alone, not on the micro-batch or the number of processes. A source that ends begins again,
// shuffled anew.
#pragma once
#include <string>
#include <vector>

#include "llmc/data/dataloader.h"

// Where a mixture stands, for the time of a run. A checkpoint saves the number of sequences, from which the
// rest follows.
struct MixturePosition {
    std::vector<DataPosition> of;  // of each source
    std::vector<uint64_t> drawn;   // sequences of each; one source: unused
    uint64_t sequences() const;    // drawn so far
};

struct Mixture {
    explicit Mixture(DataLoader loader) { loaders.push_back(std::move(loader)); }
    // Batches of B sequences of T tokens of these patterns of shards. Errors as of DataLoader, with B = 1.
    Mixture(const std::vector<std::string>& patterns, const std::vector<double>& shares, int B, int T,
            int vocab_size, uint64_t seed);

    // As of DataLoader. The tokens are not counted.
    void next_batch(int* inputs, int* targets, const SequenceRange& own = {});
    void reset() { loaders[0].reset(); }  // of one source
    MixturePosition position() const;
    void resume(const MixturePosition& position);
    void skip(uint64_t sequences);  // of a mixture, from the start

    uint64_t num_tokens() const;   // of all sources together
    uint64_t num_batches() const;  // that have so many tokens

    std::vector<DataLoader> loaders;
    std::vector<double> shares = {};  // as shares_of(); empty: one source

   private:
    size_t draw();

    std::vector<uint64_t> drawn = {};
    int B = 0, T = 0;
};
