#include "llmc/data/saved_shards.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"

std::vector<SavedShard> shards_of(const DataLoader& loader) {
    std::vector<SavedShard> found;
    for (const DataLoader::Shard& shard : loader.all_shards()) {
        std::string checksums;
        for (const TokenShard& file : shard.files) checksums += file.checksum;
        const std::string name = std::filesystem::path(shard.files[0].path).filename().generic_string();
        found.push_back({printable(name), shard.num_tokens, checksum_of(checksums)});
    }
    return found;
}

std::vector<SavedShard> shards_of(const Mixture& mixture) {
    std::vector<SavedShard> all;
    for (const DataLoader& loader : mixture.loaders) {
        const std::vector<SavedShard> shards = shards_of(loader);
        all.insert(all.end(), shards.begin(), shards.end());
    }
    return all;
}

bool have_content(const DataLoader& loader, const std::vector<SavedShard>& saved) {
    std::vector<TokenShard> files;
    for (const DataLoader::Shard& shard : loader.all_shards())
        files.insert(files.end(), shard.files.begin(), shard.files.end());
    size_t next = 0;
    for (const SavedShard& shard : saved) {
        uint64_t tokens = 0;
        std::string checksums;
        for (; tokens < shard.tokens && next < files.size(); next++) {
            tokens += files[next].tokens;
            checksums += files[next].checksum;
        }
        if (tokens != shard.tokens || checksum_of(checksums) != shard.checksum) return false;
    }
    return next == files.size();
}

// Shards of several folders may have the same name: prefers the one with the same content. -1: none has it.
static int find(const std::vector<SavedShard>& shards, const SavedShard& wanted) {
    auto at = std::find(shards.begin(), shards.end(), wanted);
    if (at == shards.end())
        at = std::find_if(shards.begin(), shards.end(), [&](const SavedShard& s) {
            return s.name == wanted.name && s.tokens == wanted.tokens;
        });
    return at == shards.end() ? -1 : int(at - shards.begin());
}

static void check_content(const std::vector<SavedShard>& saved, const std::vector<SavedShard>& now) {
    for (const SavedShard& shard : saved) {
        const int found = find(now, shard);
        if (found < 0 || now[size_t(found)].checksum == shard.checksum) continue;
        fail(
            "the training shard %s has other tokens than when the run was saved: restore it, or start a new "
            "run from the weights, with -e model_....bin and another -o",
            shard.name.c_str());
    }
}

// Fits the order in which shards are read, and the current shard's index in it.
static void fit_shards(DataPosition& at, const std::vector<SavedShard>& saved,
                       const std::vector<SavedShard>& now) {
    std::vector<int32_t> order(saved.size());
    std::iota(order.begin(), order.end(), 0);
    if (at.should_shuffle) order = at.shard_indices;
    for (int32_t i : order)
        if (i < 0 || size_t(i) >= saved.size()) fail("the saved data position is damaged: shard %d", i);
    if (at.current_shard >= order.size()) fail("the saved data position is damaged: it has too few shards");
    const SavedShard& current = saved[size_t(order[at.current_shard])];
    const int found = find(now, current);
    if (found < 0)
        fail(
            "the run stopped in the training shard %s of %llu tokens, which -i no longer matches, or which "
            "this -b, -t or number of processes joins to other shards: add it again, resume with the run's "
            "own -b and -t, or start a new run from the weights, with -e model_....bin and another -o",
            current.name.c_str(), (unsigned long long)current.tokens);
    at.current_shard = uint64_t(found);
    if (!at.should_shuffle) return;
    std::vector<int32_t> fitted, added;
    for (int32_t i : order) {
        const int index = find(now, saved[size_t(i)]);
        if (index >= 0 && std::find(fitted.begin(), fitted.end(), index) == fitted.end())
            fitted.push_back(index);
    }
    for (int i = 0; i < int(now.size()); i++)
        if (std::find(fitted.begin(), fitted.end(), i) == fitted.end()) added.push_back(i);
    shuffle(added.data(), added.size(), at.shuffle_random);
    fitted.insert(fitted.end(), added.begin(), added.end());
    at.current_shard = uint64_t(std::find(fitted.begin(), fitted.end(), found) - fitted.begin());
    at.shard_indices = fitted;
}

DataPosition fit_position(const DataPosition& saved, const std::vector<SavedShard>& saved_shards,
                          const DataLoader& loader) {
    DataPosition at = saved;
    const std::vector<SavedShard> now = shards_of(loader);
    check_content(saved_shards, now);
    if (now == saved_shards || at.sample_tokens == 0) return at;
    fit_shards(at, saved_shards, now);
    const uint64_t shard =
        at.should_shuffle ? uint64_t(at.shard_indices[at.current_shard]) : at.current_shard;
    const uint64_t samples = loader.all_shards()[shard].num_samples(at);
    if (at.current_sample >= samples) {  // among the old shards' leftover tokens: the current shard is done
        at.current_sample = samples;
        at.token_in_sample = 0;
    }
    return at;
}
