// Which process of a job owns which parameters (ZeRO stage 1): the owner sums their gradients, holds their
// optimizer state and updates them. Memory, the exchange, checkpoints and the memory plan read this table.
#pragma once
#include <optional>
#include <string>
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
    int owner;  // OptimizerShare::index, which is not the rank: share_of_process()
};

// muon: Muon for the weights of the linear layers, AdamW for all other tensors.
enum class OptimizerKind { adamw, muon };

// What an optimizer keeps of each parameter.
enum Moment { MOMENT_M, MOMENT_V, MASTER_WEIGHTS };

struct OptimizerInfo {
    OptimizerKind kind;
    const char* name;   // in --optimizer
    int state_version;  // in the header of its state files
    bool has_moment_v_of_linear_weights;
};
const std::vector<OptimizerInfo>& all_optimizers();  // in the order of OptimizerKind
const OptimizerInfo& optimizer_info(OptimizerKind kind);
std::vector<std::string> optimizer_names();
std::optional<OptimizerKind> optimizer_of_state(int state_version);

bool has_moment(OptimizerKind kind, Moment moment, int tensor);

inline constexpr int max_processes = 1 << 16;  // that a state file may name

// One of the processes that divide the parameters among themselves: owner `index` of `count`.
struct OptimizerShare {
    int index = 0, count = 1;
    OptimizerKind kind = OptimizerKind::adamw;
};

struct Ownership {
    std::vector<Shard> shards;  // every element once, in the order of tensors and elements

    // The parts of the shards that lie in the range.
    std::vector<Shard> within(const TensorRange& range) const;
    std::vector<Shard> owned_by(int owner) const;
};

// A single process owns everything. AdamW: several own equal shards of each layer of each tensor. If the
// elements cannot be divided equally, the shards are multiples of 8, and the last ones smaller or empty.
// Muon: the weights of each linear layer have one owner, so that each process has about the same work.
Ownership ownership_of(const ModelConfig& config, OptimizerKind kind, int num_processes);

bool is_linear_weight(int tensor);

// The weights of the linear layers of the model's layers `first` to before `end`; and all other tensors.
std::vector<TensorRange> linear_weight_ranges(const ModelConfig& config, int first, int end);
std::vector<TensorRange> other_ranges(const ModelConfig& config);

// The linear weights of these layers, and with layer 0 all other tensors.
std::vector<TensorRange> group_ranges(const ModelConfig& config, int first, int end);

// What nodes exchange at a time, at most 4 groups: the layers from groups_of_layers()[i] to before [i + 1]
// are group i. With wte_last, layer num_layers is wte, a group by itself if it is larger than the last group
// of layers.
std::vector<int> groups_of_layers(const ModelConfig& config, bool wte_last);

// Token t is in a set if bit t % 32 of word t / 32 is 1.
using TokenSet = std::vector<uint32_t>;
size_t token_set_words(const ModelConfig& config);
// The tokens' rows of wte, of the elements from `first` on. Gaps of up to two rows are included, since each
// range costs something by itself.
std::vector<TensorRange> token_rows(const ModelConfig& config, const TokenSet& tokens, size_t first,
                                    size_t count);
