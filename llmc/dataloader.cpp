// The data loader. Its order of samples is llm.c's for one process: the same seed gives the same batches, as
// long as every shard holds at least one batch (llm.c accepts no other).
#include "llmc/dataloader.h"

#include <glob.h>

#include <algorithm>
#include <numeric>

#include "llmc/error.h"

static std::vector<TokenShard> open_shards(const std::string& pattern) {
    glob_t found;
    int status = glob(pattern.c_str(), 0, nullptr, &found);  // sorted by name
    std::vector<std::string> paths;
    if (status == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
    if (paths.empty()) fail("no token shard matches '%s'; make some with prepare_data", pattern.c_str());
    std::vector<TokenShard> files;
    for (const std::string& path : paths) files.push_back(open_token_shard(path));
    return files;
}

// Files in order; one that is too small for a batch is joined to those after it, and the last ones, if too
// small even together, to those before.
static std::vector<DataLoader::Shard> group_shards(const std::vector<TokenShard>& files,
                                                   uint64_t batch_tokens) {
    std::vector<DataLoader::Shard> shards;
    for (const TokenShard& file : files) {
        if (shards.empty() || shards.back().num_tokens > batch_tokens) shards.emplace_back();
        shards.back().files.push_back(file);
        shards.back().num_tokens += file.tokens;
    }
    if (shards.size() > 1 && shards.back().num_tokens <= batch_tokens) {
        DataLoader::Shard rest = std::move(shards.back());
        shards.pop_back();
        shards.back().files.insert(shards.back().files.end(), rest.files.begin(), rest.files.end());
        shards.back().num_tokens += rest.num_tokens;
    }
    for (DataLoader::Shard& shard : shards) {
        // a batch takes one token more than it advances by
        shard.num_samples = shard.num_tokens > 0 ? (shard.num_tokens - 1) / batch_tokens : 0;
    }
    return shards;
}

DataLoader::DataLoader(const std::string& pattern, int B, int T, int vocab_size, bool should_shuffle,
                       uint64_t seed)
    : batch_tokens(size_t(B) * T), vocab(vocab_size) {
    if (B < 1 || T < 1) fail("batch size (%d) and sequence length (%d) must be positive", B, T);
    shards = group_shards(open_shards(pattern), batch_tokens);
    for (const Shard& shard : shards) {
        tokens += shard.num_tokens;
        batches += shard.num_samples;
    }
    if (batches == 0) {
        fail("'%s' holds %llu tokens, a batch of %d x %d needs %llu; take a smaller batch or more text",
             pattern.c_str(), (unsigned long long)tokens, B, T, (unsigned long long)batch_tokens + 1);
    }
    buffer.resize(batch_tokens + 1);
    at.should_shuffle = should_shuffle;
    at.shuffle_random = Random(seed);
    if (should_shuffle) {
        at.shard_indices.resize(shards.size());
        std::iota(at.shard_indices.begin(), at.shard_indices.end(), 0);
    }
    reset();
}

const DataLoader::Shard& DataLoader::current() const {
    return shards[at.should_shuffle ? at.shard_indices[at.current_shard] : at.current_shard];
}

void DataLoader::reset() {
    at.current_shard = 0;
    if (at.should_shuffle) shuffle(at.shard_indices.data(), at.shard_indices.size(), at.shuffle_random);
    start_shard();
}

void DataLoader::start_shard() {
    at.current_sample = 0;
    if (!at.should_shuffle) return;
    at.intra_shard_indices.resize(current().num_samples);
    std::iota(at.intra_shard_indices.begin(), at.intra_shard_indices.end(), 0);
    shuffle(at.intra_shard_indices.data(), at.intra_shard_indices.size(), at.shuffle_random);
}

// Tokens [first, first + B*T + 1) of the current shard into the buffer.
void DataLoader::read_range(uint64_t first) {
    size_t filled = 0;
    for (const TokenShard& file : current().files) {
        if (first >= file.tokens) {
            first -= file.tokens;
            continue;
        }
        size_t count = std::min<uint64_t>(buffer.size() - filled, file.tokens - first);
        read_tokens(file, first, count, buffer.data() + filled);
        for (size_t i = filled; i < filled + count; i++) {
            if (buffer[i] >= vocab) {
                fail(
                    "%s: token %llu is %d, but the model's vocabulary has %d; was it made with another "
                    "tokenizer?",
                    file.path.c_str(), (unsigned long long)(first + i - filled), buffer[i], vocab);
            }
        }
        filled += count;
        first = 0;
        if (filled == buffer.size()) return;
    }
}

void DataLoader::next_batch(int* inputs, int* targets) {
    if (at.current_sample >= current().num_samples) {
        if (at.current_shard + 1 < shards.size()) {
            at.current_shard++;
            start_shard();
        } else {
            reset();
        }
    }
    uint64_t sample = at.should_shuffle ? at.intra_shard_indices[at.current_sample] : at.current_sample;
    read_range(sample * batch_tokens);
    at.current_sample++;
    std::copy_n(buffer.begin(), batch_tokens, inputs);
    std::copy_n(buffer.begin() + 1, batch_tokens, targets);
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
    const char* hint = "resume with the same data files, batch size and sequence length";
    if (position.should_shuffle != at.should_shuffle) {
        fail("the saved data position is %s, this run's data is %s",
             position.should_shuffle ? "shuffled" : "in order", at.should_shuffle ? "shuffled" : "in order");
    }
    if (position.current_shard >= shards.size() ||
        (at.should_shuffle && !is_permutation_of(position.shard_indices, shards.size()))) {
        fail("the saved data position does not fit %zu shards; %s", shards.size(), hint);
    }
    DataPosition before = std::move(at);
    at = position;
    uint64_t samples = current().num_samples;
    if (position.current_sample > samples ||
        (at.should_shuffle && !is_permutation_of(position.intra_shard_indices, samples))) {
        at = std::move(before);
        fail(
            "the saved data position (batch %llu of %zu in its shard) does not fit this run's %llu batches; "
            "%s",
            (unsigned long long)position.current_sample, position.intra_shard_indices.size(),
            (unsigned long long)samples, hint);
    }
}
