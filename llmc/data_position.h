// Carries a data loader's position over to a run whose shards are others than those of the run that saved it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/dataloader.h"

// A shard as a checkpoint names it: a file, or the first of several small ones that are read as one.
struct SavedShard {
    std::string name;  // without its folder, so that data may be moved
    uint64_t tokens = 0;
    bool operator==(const SavedShard&) const = default;
};

std::vector<SavedShard> shards_of(const DataLoader& loader);

// The position in the loader that stands for `saved`, which counts in the order of saved_shards. The shards
// read before and the present one keep their places where they still exist, the others follow, those that are
// new at the end. Error if the present one is not among them any more.
DataPosition fit_position(const DataPosition& saved, const std::vector<SavedShard>& saved_shards,
                          const DataLoader& loader);
