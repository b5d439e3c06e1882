// The data loader. Its permutations of a seed are llm.c's for one process. llm.c drops the leftover tokens of
// each shard.
#include "llmc/data/dataloader.h"

#include <algorithm>
#include <numeric>

#include "llmc/base/ceil_div.h"
#include "llmc/base/error.h"
#include "llmc/base/lines.h"

using Shard = DataLoader::Shard;
using Piece = DataLoader::Piece;
using Batch = DataLoader::Batch;

// Keeps the files in order. A file too small for a batch is joined to the files after it; the last files, if
// too small even together, to the shard before.
static std::vector<Shard> group_shards(const std::vector<TokenShard>& files, uint64_t batch_tokens) {
    std::vector<Shard> shards;
    for (const TokenShard& file : files) {
        if (shards.empty() || shards.back().num_tokens > batch_tokens) shards.emplace_back();
        shards.back().files.push_back(file);
        shards.back().num_tokens += file.tokens;
    }
    if (shards.size() > 1 && shards.back().num_tokens <= batch_tokens) {
        Shard rest = std::move(shards.back());
        shards.pop_back();
        shards.back().files.insert(shards.back().files.end(), rest.files.begin(), rest.files.end());
        shards.back().num_tokens += rest.num_tokens;
    }
    return shards;
}

DataLoader::DataLoader(const std::vector<std::string>& patterns, int B, int T, int vocab_size,
                       bool should_shuffle, uint64_t seed, bool may_repeat)
    : sequence_tokens(T),
      batch_tokens(uint64_t(B) * T),
      sample_tokens(should_shuffle ? uint64_t(T) : batch_tokens),
      vocab(vocab_size) {
    if (B < 1 || T < 1) fail("batch size (%d) and sequence length (%d) must be positive", B, T);
    shards = std::make_shared<std::vector<Shard>>(group_shards(open_token_shards(patterns), batch_tokens));
    uint64_t targets = 0;
    for (const Shard& shard : *shards) {
        tokens += shard.num_tokens;
        targets += shard.num_targets();
    }
    if (targets < (may_repeat ? 1 : batch_tokens)) {
        const bool one_fits = targets >= uint64_t(T);
        fail("'%s' holds %llu tokens, but a batch of %d x %d needs %llu; use %s or more text",
             joined(patterns, "', '").c_str(), (unsigned long long)tokens, B, T,
             (unsigned long long)batch_tokens + 1,
             one_fits ? "a smaller batch (-b)" : "shorter sequences (-t)");
    }
    batches = ceil_div(targets, batch_tokens);
    at.should_shuffle = should_shuffle;
    at.shuffle_random = Random(seed);
    if (should_shuffle) {
        at.shard_indices.resize(shards->size());
        std::iota(at.shard_indices.begin(), at.shard_indices.end(), 0);
    }
    start_epoch(0);
}

uint64_t Shard::first_token(const DataPosition& of_run) const {
    const bool is_packed =
        std::any_of(files.begin(), files.end(), [](const auto& file) { return file.mask; });
    return is_packed ? 0 : std::min(of_run.first_token, num_targets());
}

uint64_t DataLoader::shard_number() const {
    return at.should_shuffle ? at.shard_indices[at.current_shard] : at.current_shard;
}

// Where the shard's i-th sample in the order of drawing begins.
uint64_t DataLoader::token_at(uint64_t i) const {
    const uint64_t sample = at.should_shuffle ? uint64_t(at.intra_shard_indices[i]) : i;
    return (*shards)[shard_number()].first_token(at) + sample * at.sample_tokens;
}

uint64_t DataLoader::num_samples() const { return (*shards)[shard_number()].num_samples(at); }

uint64_t DataLoader::leftover_tokens() const {
    uint64_t sum = 0;
    for (const Shard& shard : *shards) sum += shard.leftover_tokens(at);
    return sum;
}

// The copy leaves the permutations as llm.c's.
void DataLoader::reset() {
    Random copy = at.shuffle_random;
    start_epoch(at.should_shuffle ? copy.next32() % sample_tokens : 0);
}

void DataLoader::start_epoch(uint64_t first_token) {
    at.current_shard = 0;
    at.first_token = first_token;
    if (at.should_shuffle) shuffle(at.shard_indices.data(), at.shard_indices.size(), at.shuffle_random);
    start_shard();
}

void DataLoader::start_shard() {
    at.current_sample = at.token_in_sample = 0;
    at.sample_tokens = sample_tokens;
    if (!at.should_shuffle) return;
    at.intra_shard_indices.resize(num_samples());
    std::iota(at.intra_shard_indices.begin(), at.intra_shard_indices.end(), 0);
    shuffle(at.intra_shard_indices.data(), at.intra_shard_indices.size(), at.shuffle_random);
}

bool DataLoader::at_epoch_end() const {
    if (at.current_shard + 1 < shards->size() || at.current_sample < num_samples()) return false;
    return (at.current_sample - num_samples()) * at.sample_tokens + at.token_in_sample >= leftover_tokens();
}

void DataLoader::advance(uint64_t count) {
    const uint64_t in_sample = at.token_in_sample + count;
    at.current_sample += in_sample / at.sample_tokens;
    at.token_in_sample = in_sample % at.sample_tokens;
}

// Draws at most `wanted` leftover tokens, from the current position on.
Piece DataLoader::take_leftover(uint64_t wanted) {
    uint64_t skip = (at.current_sample - num_samples()) * at.sample_tokens + at.token_in_sample;
    for (uint64_t number = 0; number < shards->size(); number++) {
        const Shard& shard = (*shards)[number];
        const uint64_t left = shard.leftover_tokens(at), before = shard.first_token(at);
        if (skip < left) {
            const uint64_t count = std::min(wanted, (skip < before ? before : left) - skip);
            const uint64_t of_samples = skip < before ? 0 : shard.num_samples(at) * at.sample_tokens;
            advance(count);
            return {number, of_samples + skip, count};
        }
        skip -= left;
    }
    return {0, 0, 0};
}

// Draws at most `wanted` consecutive tokens and advances the position.
Piece DataLoader::take(uint64_t wanted) {
    while (at.current_sample >= num_samples()) {
        if (at.current_shard + 1 == shards->size()) return take_leftover(wanted);
        at.current_shard++;
        start_shard();
    }
    const uint64_t count = std::min(wanted, at.sample_tokens - at.token_in_sample);
    const Piece piece = {shard_number(), token_at(at.current_sample) + at.token_in_sample, count};
    advance(count);
    return piece;
}

// Draws the pieces of the next batch; `fresh` counts its tokens that are new in this epoch.
std::vector<Piece> DataLoader::take_batch(int& fresh) {
    if (at_epoch_end()) reset();
    std::vector<Piece> pieces;
    uint64_t missing = batch_tokens;
    while (missing > 0 && !at_epoch_end()) {
        pieces.push_back(take(missing));
        missing -= pieces.back().count;
    }
    fresh = int(batch_tokens - missing);
    for (uint64_t i = 0; missing > 0; i++) {  // fill up the epoch's last batch
        const uint64_t number = i % shards->size(),
                       count = std::min(missing, (*shards)[number].num_targets());
        if (count > 0) pieces.push_back({number, 0, count});
        missing -= count;
    }
    if (at.token_in_sample > 0 && at_epoch_end())  // an epoch ends at a sample boundary
        advance(at.sample_tokens - at.token_in_sample);
    return pieces;
}

// Appends inputs [first, first + count) of a shard and their targets.
static void read_range(const Shard& shard, uint64_t first, uint64_t count, int vocab_size, Batch& batch) {
    count++;
    std::vector<uint16_t> tokens(count);
    std::vector<int> targets(count);
    size_t filled = 0;
    for (const TokenShard& file : shard.files) {
        if (first >= file.tokens) {
            first -= file.tokens;
            continue;
        }
        const size_t some = std::min<uint64_t>(count - filled, file.tokens - first);
        read_tokens(file, first, some, tokens.data() + filled);
        check_tokens(file, first, std::span(tokens).subspan(filled, some), vocab_size);
        std::copy_n(tokens.begin() + long(filled), some, targets.begin() + long(filled));
        ignore_targets(file, first, std::span(targets).subspan(filled, some));
        filled += some;
        first = 0;
        if (filled == count) break;
    }
    batch.inputs.insert(batch.inputs.end(), tokens.begin(), tokens.end() - 1);
    batch.targets.insert(batch.targets.end(), targets.begin() + 1, targets.end());
}

static Batch read_batch(DataLoader::Shards shards, std::vector<Piece> pieces, int vocab_size) {
    Batch batch;
    for (const Piece& piece : pieces)
        read_range((*shards)[piece.shard], piece.first, piece.count, vocab_size, batch);
    return batch;
}

// Starts reading the batch after this one if it consists of the shard's next samples, as nearly always.
void DataLoader::prefetch() {
    const uint64_t count = batch_tokens / at.sample_tokens;
    if (!prefetches || batch_tokens % at.sample_tokens || at.token_in_sample > 0 ||
        at.current_sample + count > num_samples())
        return;
    for (uint64_t i = at.current_sample; i < at.current_sample + count; i++)
        prefetched_pieces.push_back({shard_number(), token_at(i), at.sample_tokens});
    prefetched = std::async(std::launch::async, read_batch, shards, prefetched_pieces, vocab);
}

int DataLoader::next_batch(int* inputs, int* targets, const SequenceRange& own) {
    int fresh;
    const std::vector<Piece> pieces = take_batch(fresh);
    const bool was_prefetched = prefetched_pieces == pieces;
    prefetched_pieces.clear();
    const Batch batch = was_prefetched ? prefetched.get() : read_batch(shards, pieces, vocab);
    const int first = own.first * sequence_tokens;
    const int count = own.count < 0 ? int(batch_tokens) : own.count * sequence_tokens;
    std::copy_n(batch.inputs.begin() + first, count, inputs);
    std::copy_n(batch.targets.begin() + first, count, targets);
    prefetch();
    return std::clamp(fresh - first, 0, count);
}

void DataLoader::skip(uint64_t count) {
    int fresh;
    for (uint64_t i = 0; i < count; i++) take_batch(fresh);
}

// Whether values are 0..size-1 in some order.
static bool is_permutation_of(const std::vector<int32_t>& values, uint64_t size) {
    std::vector<bool> seen(values.size());
    for (int32_t value : values) {
        if (value < 0 || size_t(value) >= values.size() || seen[value]) return false;
        seen[value] = true;
    }
    return values.size() == size;
}

void DataLoader::resume(const DataPosition& position) {
    const char* hint = "resume with the same data files, or start a new run from the weights with -e";
    if (position.should_shuffle != at.should_shuffle)
        fail("the saved data position is %s, but this run's data is %s",
             position.should_shuffle ? "shuffled" : "in order", at.should_shuffle ? "shuffled" : "in order");
    if (position.current_shard >= shards->size() ||
        (at.should_shuffle && !is_permutation_of(position.shard_indices, shards->size()))) {
        fail("the saved data position does not fit %zu shards; %s", shards->size(), hint);
    }
    if (position.sample_tokens >> 40 || position.first_token >> 40)
        fail("the saved data position is damaged: samples of %llu tokens from token %llu on",
             (unsigned long long)position.sample_tokens, (unsigned long long)position.first_token);
    DataPosition before = std::move(at);
    at = position;
    if (at.sample_tokens == 0) {  // llm.c's file, or this trainer's without its run_*.json
        at.sample_tokens = batch_tokens;
        if (at.should_shuffle && at.intra_shard_indices.size() != num_samples())
            at.sample_tokens = sample_tokens;
    }
    const uint64_t samples = num_samples();
    const bool last = at.current_shard + 1 == shards->size();
    const uint64_t most = samples + (last ? ceil_div(leftover_tokens(), at.sample_tokens) : 0);
    if (at.current_sample > most || at.token_in_sample >= at.sample_tokens ||
        (at.should_shuffle && !is_permutation_of(at.intra_shard_indices, samples))) {
        at = std::move(before);
        fail("the saved data position (sample %llu of %zu in its shard) does not fit this run's %llu; %s",
             (unsigned long long)position.current_sample, position.intra_shard_indices.size(),
             (unsigned long long)samples, hint);
    }
}
