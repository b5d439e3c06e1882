// Which process of a job owns which parameters (ZeRO stage 1): the owner sums their gradients, holds their
// optimizer state and updates them. Memory, the exchange, checkpoints and the memory plan read this table.
#pragma once
#include <vector>

#include "llmc/model/model_config.h"

// A range of a tensor's elements.
struct TensorRange {
    int tensor;
    size_t first, count;
};

// A range of a tensor's elements that belongs to one process.
struct Shard {
    int tensor;
    size_t first, count;
    int owner;  // the index of its OptimizerShare
};

// muon: Muon for the weights of the linear layers, AdamW for all other tensors.
enum class OptimizerKind { adamw, muon };
const char* optimizer_name(OptimizerKind kind);

// One of the processes that divide the parameters among themselves: owner `index` of `count`.
struct OptimizerShare {
    int index = 0, count = 1;
    OptimizerKind kind = OptimizerKind::adamw;
};

// What an optimizer keeps of each parameter. Muon has no MOMENT_V.
enum Moment { MOMENT_M, MOMENT_V, MASTER_WEIGHTS };
bool has_moment(OptimizerKind kind, Moment moment, int tensor);

struct Ownership {
    std::vector<Shard> shards;  // every element once, in the order of tensors and elements

    // The parts of the shards that lie in the range.
    std::vector<Shard> within(const TensorRange& range) const;
    std::vector<Shard> owned_by(int owner) const;
};

// The table of an optimizer. One process owns all. AdamW: several own equal parts of each layer of each
// tensor; parts that cannot be equal begin at multiples of 8 elements, and the last ones are smaller or
// empty. Muon: the weights of a linear layer have one owner, so that each process has about the same work.
Ownership ownership_of(const ModelConfig& config, OptimizerKind kind, int num_processes);

bool is_linear_weight(int tensor);

// The weights of the linear layers of the model's layers `first` to before `end`; and all other tensors.
std::vector<TensorRange> linear_weight_ranges(const ModelConfig& config, int first, int end);
std::vector<TensorRange> other_ranges(const ModelConfig& config);
