// Data parallelism over shared host memory, with ZeRO stage 1: gradients are summed in the process that owns
// them (ownership.h), which updates its weights; then all other processes copy those.
//
// Each process of a node has a shared buffer with room for every parameter. A step has three phases; in
// NCCL's words, 1 and 2 are a reduce-scatter, and 3 is an all-gather:
//   1. During the last backward pass, each process stores the gradients that others own to its buffer, layer
//      by layer.
//   2. Each process sums the gradients that it owns over all buffers, in the order of ranks. Layers that are
//      already stored when five sixths of the backward pass are done are summed during the rest of it, all
//      others after it. The norm follows from all owners' sums of squares.
//   3. Each process updates its weights, stores them to its buffer, and gathers the others' weights, those of
//      the first layers before the next forward pass and the rest during it.
// The processes synchronize between storing and gathering. A process's buffer holds weights only in the
// ranges that it owns, and gradients only elsewhere, so one synchronization in each backward pass and one
// after each update suffice.
//
// Between nodes, the ranks with the same local rank exchange messages: the sums of one node go to the owner,
// and its weights to the other nodes. The layers form up to four groups, of which a message each goes to each
// peer, while the passes run:
//
//     layers of 48     backward: sent after     forward: received before     besides
//     14 to 47         layer 14                 layer 14                     wte
//     4 to 13          layer 4                  layer 4
//     1 to 3           layer 1                  layer 1
//     0                the pass                 the pass                     all other tensors, rows of wte
//
// A group has more layers than the next one to be sent, since there is more time for it. The processes of a
// node synchronize for each group. The CPU sums, also for a GPU: the sums travel from host memory.
//
// A wte that is larger than the last group's layers is a group by itself, sent after the backward pass of the
// head and received before the head. The encoder's backward pass then changes the rows of the last inputs:
// group 0 brings them again, in the place of what came before. Another process may still sum a row when it is
// stored again; such a sum is never used. The rows of the next step's first inputs are needed before wte
// arrives: group 0 brings those weights, which are the same in both messages. Rows are ranges of elements
// like all others. The processes of a node announce their inputs in its buffers; nodes send each other the
// union, the last inputs with wte's gradients, the next ones with group 0's. With many inputs, where this
// would gain little, wte is one of the other tensors.
//
// On a GPU, what overlaps with the passes is copied by LaunchPad::copy_async(), on its copy engines if it has
// them. Gradients that are summed then come to memory of the device first: a kernel that reads the buffers
// itself would occupy SMs for as long as the bus takes. Only sums that overlap with nothing read the buffers
// directly.
//
// Every process ends with identical weights, and the same number of processes gives bit-identical runs.
#pragma once
#include <span>
#include <vector>

#include "llmc/distributed/communicator.h"
#include "llmc/layers/gradient_sum.h"
#include "llmc/model/gpt2.h"

// announce() is given the inputs of a step's last micro-step, or of the next step's first one.
enum class InputsOf { last_micro_step, next_step };

template <class Real>
struct GradientExchange {
    // Allocates the shared memory, which the model's launchpad imports if it can. All processes call it, with
    // the same parameters. Error if there is not enough shared memory. All nodes must have the same number of
    // processes. A model that only counts memory: counts this process's, and can do nothing else.
    GradientExchange(GPT2<Real>& model, const Ownership& ownership, Communicator& job);
    GradientExchange(const GradientExchange&) = delete;
    ~GradientExchange();

    bool between_nodes() const { return comm.num_nodes > 1; }
    void synchronize();  // waits for the GPU, then for the other processes of the node
    // Call it when the GPU has something to do: sums and sends gradients that send_gradients() left.
    void work();

    // --- inputs ---

    // Between nodes. Call begin_step() with the inputs of a step's first micro-step: error if they were not
    // announced, unless exchange_weights() has gathered all weights since. Announce the last inputs before
    // their backward pass, and the next ones before reduce(), or all rows of wte are sent early.
    void begin_step(std::span<const int> inputs);
    void announce(InputsOf which, std::span<const int> inputs);

    // --- gradients ---

    // Call it after the backward pass of each layer: starts what overlaps with the lower-numbered layers.
    // Between nodes, also after the head, which is layer num_layers.
    // Call synchronize() before after_layer(synchronization_layer()); -1: never.
    void after_layer(int layer);
    int synchronization_layer() const;
    // Call send_gradients() with this group after after_layer(); -1: none.
    int gradients_after(int layer) const;
    void send_gradients(int group);
    // After the backward pass: sums the remaining gradients, each in its owner's g.grads. g.stats receives
    // the sum of the losses, the norm, and the scale, as gpt2_gradient_norm() computes them. The step has
    // `tokens` in all processes; the targets of `counted` of this process's count.
    void reduce(float max_norm, int64_t tokens, int64_t counted);

    // --- weights ---

    // Whether weights can be gathered during the forward pass. Otherwise call exchange_weights() after each
    // update.
    bool weights_overlap() const { return between_nodes() ? overlaps() : all_on_launchpads; }
    // What the forward pass reads first, and the rest. After the update of the first weights, store_weights()
    // stores them while the rest is updated; between nodes, send_first_weights() follows. After the update,
    // finish_update(); then gather_first_weights() gathers them.
    std::vector<TensorRange> first_weights() const { return group_ranges(g.config, 0, first_end()); }
    std::vector<TensorRange> later_weights() const {
        return linear_weights(first_end(), g.config.num_layers);
    }
    void store_weights(const std::vector<TensorRange>& ranges);
    void send_first_weights() { send_weights(1); }
    void finish_update();
    void gather_first_weights();
    // Call it before the forward pass of each layer: stores and gathers weights of higher-numbered layers.
    // Between nodes, also before the head, which is layer num_layers.
    // If synchronizes_before(layer), call synchronize() first. Call receive_weights() with the group that
    // weights_before() names; -1: none.
    void before_layer(int layer);
    bool synchronizes_before(int layer) const;
    int weights_before(int layer) const;
    void receive_weights(int group);
    // After an update that was skipped, before finish_update(): between nodes, gradients have taken the place
    // of weights.
    void restore_weights();
    // Gathers all weights, which were sent if weights_overlap().
    void exchange_weights();

    // --- messages between nodes ---

    // To other nodes: a group's sums, or weights.
    struct Messages {
        std::vector<Message> sends, receives;
    };
    Messages gradient_messages(int group);
    Messages weight_messages(int group) const;
    int num_groups() const { return int(group_begin.size()) - 1; }

    // The kernels of all phases, for LaunchPad::dry_run().
    void run_all_kernels();

   private:
    struct Copy {
        Real* to;
        const Real* from;
        size_t n;
    };
    using Copies = std::vector<Copy>;
    // The gradients of a shard from all processes of the node, (local_size, stride), in memory of the device.
    struct GatheredShard {
        Shard shard;
        Real* gradients;
        size_t stride;
    };

    void count_memory();
    void check_synchronized(bool needed, int layer);
    void import_buffers();
    void allocate_gathered();
    void copy(const Copies& copies);
    bool overlaps() const { return !some_cannot_import; }
    // A GPU that cannot import the buffers: the CPU sums.
    bool sums_on_host() const { return g.pad && !on_launchpad; }
    LaunchPad* pad() const { return on_launchpad ? g.pad : nullptr; }

    // Owners are numbered so that those of one local rank follow each other: share_of_process().
    int owner_local_rank(const Shard& s) const { return s.owner / comm.num_nodes; }
    int owner_node(const Shard& s) const { return s.owner % comm.num_nodes; }
    bool is_mine(const Shard& s) const {
        return owner_local_rank(s) == comm.local_rank && owner_node(s) == comm.node;
    }
    int peer(int node) const { return comm.first_ranks[node] + comm.local_rank; }
    std::vector<Shard> shards_in(const std::vector<TensorRange>& ranges) const;
    // Those that this process sums: it owns them, or sends the sums to another node.
    std::vector<Shard> summed_shards(const std::vector<TensorRange>& ranges) const;
    std::vector<Shard> summed_ranges(const std::vector<TensorRange>& ranges) const;  // neighbours joined
    std::vector<TensorRange> linear_weights(int first_layer, int end_layer) const {
        return linear_weight_ranges(g.config, first_layer, std::min(end_layer, g.config.num_layers));
    }

    Real* buffer(int rank) const { return buffers + rank * stride; }
    Real* in_buffer(int rank, const Shard& s) const { return buffer(rank) + offsets[s.tensor] + s.first; }
    bool is_in_buffers(const Real* p) const { return p >= buffers && p < buffer(comm.local_size); }
    Real* gradients_of(const Shard& s) const { return g.grads[s.tensor] + s.first; }
    Real* weights_of(const Shard& s) const { return g.params[s.tensor] + s.first; }

    void add_gradient_stores(Copies& copies, const std::vector<TensorRange>& ranges) const;
    void add_weight_stores(Copies& copies, const std::vector<TensorRange>& ranges) const;
    void add_weight_gathers(Copies& copies, const std::vector<TensorRange>& ranges) const;
    void add_gradient_gathers(Copies& copies, const std::vector<TensorRange>& ranges) const;
    std::vector<GatheredShard> gathered_shards(const std::vector<TensorRange>& ranges) const;
    void sum_gathered(const std::vector<TensorRange>& ranges);
    void add_gradient_copies(Copies& copies, const std::vector<TensorRange>& ranges) const;
    std::vector<GradientSum<Real>> sums_of(const std::vector<Shard>& shards, bool from_buffer,
                                           bool to_buffer);
    void sum_in_buffers(const std::vector<TensorRange>& ranges);
    std::vector<TensorRange> summed_during(int layer) const;
    int first_summed_early() const;
    int end_first_layers() const { return std::min(2, g.config.num_layers); }
    int first_end() const { return between_nodes() ? group_begin[1] : end_first_layers(); }
    int middle_layer() const;
    std::vector<TensorRange> ranges_of(int group) const;
    TensorRange all_of_wte() const { return {WTE, 0, parameter_size(g.config, WTE)}; }
    std::vector<TensorRange> layer_ranges(int layer) const {
        return wte_last && layer == g.config.num_layers ? std::vector{all_of_wte()}
                                                        : linear_weights(layer, layer + 1);
    }
    // A GPU's gradients of a layer are stored during the next one: their reduction may be postponed. The
    // processes of a job synchronize after the same layers.
    int lag() const { return some_on_launchpad ? 1 : 0; }
    int group_at(int layer) const;
    size_t incoming_elements();
    void form_groups(int64_t most_inputs);
    uint32_t* set_in_buffer(int rank, InputsOf which) const {
        return reinterpret_cast<uint32_t*>(buffer(rank) + sets_offset) +
               size_t(which) * token_set_words(g.config);
    }
    std::vector<TensorRange> rows_of_last_inputs() const;
    void unite(InputsOf which);
    void add_sets(Messages& messages, InputsOf which);
    void add_rows(std::vector<Message>& messages, int node, const TokenSet& tokens, const Shard& s) const;
    void add_row_gradients(Messages& messages);
    void add_row_weights(Messages& messages) const;
    void reduce_in_node();
    void reduce_between_nodes();
    void sum_in_node(const std::vector<TensorRange>& ranges);
    void sum_over_nodes(int group);
    void before_layer_between_nodes(int layer);
    void gather(const std::vector<TensorRange>& ranges);
    void send_weights(int end_group);
    double sum_of_squares();

    GPT2<Real>& g;
    Ownership ownership;
    Communicator& comm;
    size_t offsets[NUM_PARAMETER_TENSORS];  // of the tensors in a buffer
    size_t sets_offset = 0;                 // of its sets of tokens, by InputsOf
    size_t stride = 0;                      // elements of a buffer
    Real* buffers = nullptr;                // (local_size, stride), shared
    bool on_launchpad = false;              // the launchpad reads and writes the buffers
    // Of all processes, whose devices may be unlike, while their protocol is one
    bool some_cannot_import = false, all_on_launchpads = false, some_on_launchpad = false;
    bool synchronized = false;  // since the last call for a layer
    Real* gathered = nullptr;   // on the device: the memory of GatheredShard
    std::vector<TensorRange> everything;
    std::vector<GradientSlice<Real>> own_sums;  // to compute the norm: the sums that this process owns
    std::vector<int> group_begin;               // groups_of_layers()
    std::vector<Real> incoming;                 // (num_nodes, n) of each owned shard: the sums of other nodes
    std::vector<size_t> incoming_of;            // where a group's begin, and their end
    std::vector<TokenSet> sets[2];              // by InputsOf and node: what its processes have announced
    TokenSet announced;                         // the next inputs, by this process
    bool has_all_weights = false;               // since the last update
    bool wte_last = false;                      // is in the last group, and rows in group 0
    std::vector<std::shared_ptr<::Exchange>> gradients_sent, weights_sent;  // by group
    int num_sent = 0;  // groups of weights since the update
    int due = -1;      // group of gradients that is stored and not sent
};
