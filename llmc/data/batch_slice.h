// The share of one process in each batch: all processes draw the same batches, and each keeps its own
// sequences.
#pragma once
#include <algorithm>
#include <vector>

#include "llmc/data/dataloader.h"

// Draws the next batch and copies sequences rank * B .. rank * B + B - 1 of it, of T tokens each, into inputs
// and targets (B,T). The loader draws batches of all processes. Returns how many of these tokens are new in
// this epoch, as DataLoader::next_batch() does.
inline int next_batch_slice(DataLoader& loader, int* inputs, int* targets, int slice_tokens, int rank,
                            int num_processes) {
    if (num_processes == 1) return loader.next_batch(inputs, targets);
    const size_t all = size_t(slice_tokens) * num_processes, first = size_t(slice_tokens) * rank;
    std::vector<int> all_inputs(all), all_targets(all);
    const int fresh = loader.next_batch(all_inputs.data(), all_targets.data());
    std::copy_n(all_inputs.begin() + first, slice_tokens, inputs);
    std::copy_n(all_targets.begin() + first, slice_tokens, targets);
    return std::clamp(fresh - int(first), 0, slice_tokens);
}
