// Carries a data loader's position over to a run that reads other shards than the run that saved it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/data/mixture.h"

// A shard as a checkpoint names it: a file, or the first of several small files read as one shard.
struct SavedShard {
    std::string name;  // without its folder, so that data may be moved
    uint64_t tokens = 0;
    std::string checksum;  // of its content (token_file.h)
    bool operator==(const SavedShard&) const = default;
};

std::vector<SavedShard> shards_of(const DataLoader& loader);
std::vector<SavedShard> shards_of(const Mixture& mixture);
// Whether the loader's files have the content of the saved shards, in their order, also where another batch
// joins small files to other shards.
bool have_content(const DataLoader& loader, const std::vector<SavedShard>& saved);

// Translates a position saved under saved_shards into the loader's shards. Shards already read and the
// current one keep their order, as far as they still exist; the other old shards follow, then the new ones.
// Error if the current shard no longer exists, or if the content of a shard has changed.
DataPosition fit_position(const DataPosition& saved, const std::vector<SavedShard>& saved_shards,
                          const DataLoader& loader);
