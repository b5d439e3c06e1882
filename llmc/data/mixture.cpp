#include "llmc/data/mixture.h"

#include <numeric>

#include "llmc/base/ceil_div.h"

uint64_t MixturePosition::sequences() const {
    return std::accumulate(drawn.begin(), drawn.end(), uint64_t(0));
}

Mixture::Mixture(const std::vector<std::string>& patterns, const std::vector<double>& with_shares,
                 int batch_size, int sequence, int vocab_size, uint64_t seed)
    : shares(with_shares), drawn(shares.size()), B(batch_size), T(sequence) {
    for (size_t i = 0; i < patterns.size(); i++) {
        loaders.emplace_back(patterns[i], 1, T, vocab_size, true, seed + i);
        loaders[i].prefetches = false;  // a sequence may be another process's
    }
}

// The source of the next sequence.
size_t Mixture::draw() {
    const double count = double(std::accumulate(drawn.begin(), drawn.end(), uint64_t(1)));
    size_t next = 0;
    const auto owed = [&](size_t i) { return shares[i] * count - double(drawn[i]); };
    for (size_t i = 1; i < shares.size(); i++)
        if (owed(i) > owed(next)) next = i;
    drawn[next]++;
    return next;
}

void Mixture::next_batch(int* inputs, int* targets, const SequenceRange& own) {
    if (shares.empty()) return void(loaders[0].next_batch(inputs, targets, own));
    const int end = own.count < 0 ? B : own.first + own.count;
    for (int row = 0; row < B; row++) {
        DataLoader& source = loaders[draw()];
        const ptrdiff_t at = ptrdiff_t(row - own.first) * T;
        if (row >= own.first && row < end)
            source.next_batch(inputs + at, targets + at);
        else
            source.skip(1);
    }
}

MixturePosition Mixture::position() const {
    MixturePosition position = {.of = {}, .drawn = drawn};
    for (const DataLoader& loader : loaders) position.of.push_back(loader.position());
    return position;
}

void Mixture::resume(const MixturePosition& position) {
    for (size_t i = 0; i < loaders.size(); i++) loaders[i].resume(position.of[i]);
    drawn = position.drawn;
}

void Mixture::skip(uint64_t sequences) {
    for (uint64_t i = 0; i < sequences; i++) draw();
    for (size_t i = 0; i < loaders.size(); i++) loaders[i].skip(drawn[i]);
}

uint64_t Mixture::num_tokens() const {
    uint64_t tokens = 0;
    for (const DataLoader& loader : loaders) tokens += loader.num_tokens();
    return tokens;
}

uint64_t Mixture::num_batches() const {
    if (shares.empty()) return loaders[0].num_batches();
    uint64_t sequences = 0;
    for (const DataLoader& loader : loaders) sequences += loader.num_batches();
    return ceil_div(sequences, uint64_t(B));
}
