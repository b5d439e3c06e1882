// Messages between nodes: see gradient_exchange.h.
#include <algorithm>
#include <utility>

#include "llmc/model/gradient_exchange.h"

// --- groups ---

// Two tokens for each row of wte have a sixth to a fourth of the rows in a text. With more, wte would travel
// nearly twice.
template <class Real>
void GradientExchange<Real>::form_groups(int64_t most_inputs) {
    wte_last = between_nodes() && overlaps() && most_inputs * comm.local_size <= 2 * g.config.vocab_size;
    group_begin = groups_of_layers(g.config, wte_last);
    gradients_sent.resize(num_groups());
    weights_sent.resize(num_groups());
    announced.assign(token_set_words(g.config), ~0u);
    for (std::vector<TokenSet>& of_nodes : sets) of_nodes.resize(comm.num_nodes, announced);
}

// Also sets incoming_of.
template <class Real>
size_t GradientExchange<Real>::incoming_elements() {
    size_t n = 0;
    incoming_of.clear();
    for (int group = 0; between_nodes() && group < num_groups(); group++) {
        incoming_of.push_back(n);
        for (const Shard& s : summed_shards(ranges_of(group)))
            if (is_mine(s)) n += comm.num_nodes * s.count;
    }
    incoming_of.push_back(n);
    return n;
}

template <class Real>
std::vector<TensorRange> GradientExchange<Real>::ranges_of(int group) const {
    std::vector<TensorRange> ranges;
    for (int layer = group_begin[group]; layer < group_begin[group + 1]; layer++)
        for (const TensorRange& range : layer_ranges(layer)) ranges.push_back(range);
    for (const TensorRange& range : other_ranges(g.config))
        if (group == 0 && !(wte_last && range.tensor == WTE)) ranges.push_back(range);
    return ranges;
}

template <class Real>
int GradientExchange<Real>::group_at(int layer) const {
    for (int group = 1; between_nodes() && overlaps() && group < num_groups(); group++)
        if (layer == group_begin[group]) return group;
    return -1;
}

// --- rows of wte ---

template <class Real>
void GradientExchange<Real>::announce(InputsOf which, std::span<const int> inputs) {
    if (!wte_last) return;
    uint32_t* const words = set_in_buffer(comm.local_rank, which);
    std::fill_n(words, token_set_words(g.config), 0u);
    for (const int token : inputs) words[token / 32] |= 1u << token % 32;
}

template <class Real>
void GradientExchange<Real>::begin_step(std::span<const int> inputs) {
    if (!wte_last) return;
    for (const int token : inputs)
        if (!has_all_weights && !(announced[token / 32] >> token % 32 & 1))
            fail("gradient exchange: token %d was not announced for this step", token);
    std::fill_n(set_in_buffer(comm.local_rank, InputsOf::next_step), token_set_words(g.config), ~0u);
}

// After the processes of the node have announced their inputs and synchronized.
template <class Real>
void GradientExchange<Real>::unite(InputsOf which) {
    TokenSet& all = sets[int(which)][comm.node];
    std::fill(all.begin(), all.end(), 0u);
    for (int rank = 0; rank < comm.local_size; rank++)
        for (size_t i = 0; i < all.size(); i++) all[i] |= set_in_buffer(rank, which)[i];
    const uint32_t* const own = set_in_buffer(comm.local_rank, which);
    if (which == InputsOf::next_step) announced.assign(own, own + all.size());
}

template <class Real>
void GradientExchange<Real>::add_sets(Messages& messages, InputsOf which) {
    std::vector<TokenSet>& of = sets[int(which)];
    const size_t bytes = token_set_words(g.config) * sizeof(uint32_t);
    for (int node = 0; node < comm.num_nodes; node++) {
        if (node == comm.node) continue;
        messages.sends.push_back({peer(node), of[comm.node].data(), bytes});
        messages.receives.push_back({peer(node), of[node].data(), bytes});
    }
}

// Rows of the shard in this process's buffer.
template <class Real>
void GradientExchange<Real>::add_rows(std::vector<Message>& messages, int node, const TokenSet& tokens,
                                      const Shard& s) const {
    for (const auto& [tensor, first, count] : token_rows(g.config, tokens, s.first, s.count))
        messages.push_back(
            {peer(node), buffer(comm.local_rank) + offsets[WTE] + first, count * sizeof(Real)});
}

// As add_rows() sends them, shard by shard: rows between near ones that belong to two shards stay out.
template <class Real>
std::vector<TensorRange> GradientExchange<Real>::rows_of_last_inputs() const {
    std::vector<TensorRange> rows;
    for (const Shard& s : shards_in({all_of_wte()}))
        for (const TensorRange& range :
             token_rows(g.config, sets[int(InputsOf::last_micro_step)][comm.node], s.first, s.count))
            rows.push_back(range);
    return rows;
}

// The gradients that arrive take the place of those that came with the group of wte.
template <class Real>
void GradientExchange<Real>::add_row_gradients(Messages& messages) {
    const std::vector<TokenSet>& tokens = sets[int(InputsOf::last_micro_step)];
    for (const Shard& s : summed_shards({all_of_wte()})) {
        if (!is_mine(s)) {
            add_rows(messages.sends, owner_node(s), tokens[comm.node], s);
            continue;
        }
        Real* at = incoming.data() + incoming_of.back() - comm.num_nodes * s.count;  // wte's are the last
        for (int node = 0; node < comm.num_nodes; node++, at += s.count)
            for (const auto& [tensor, first, count] : token_rows(g.config, tokens[node], s.first, s.count))
                if (node != comm.node)
                    messages.receives.push_back({peer(node), at + (first - s.first), count * sizeof(Real)});
    }
}

template <class Real>
void GradientExchange<Real>::add_row_weights(Messages& messages) const {
    const std::vector<TokenSet>& tokens = sets[int(InputsOf::next_step)];
    for (const Shard& s : summed_shards({all_of_wte()})) {
        if (!is_mine(s)) add_rows(messages.receives, owner_node(s), tokens[comm.node], s);
        for (int node = 0; is_mine(s) && node < comm.num_nodes; node++)
            if (node != comm.node) add_rows(messages.sends, node, tokens[node], s);
    }
}

// --- gradients ---

template <class Real>
int GradientExchange<Real>::gradients_after(int layer) const {
    return group_at(layer + lag());
}

template <class Real>
void GradientExchange<Real>::send_gradients(int group) {
    synchronize();
    synchronized = false;
    due = group;
    if (!g.pad) work();
}

template <class Real>
void GradientExchange<Real>::work() {
    if (due < 0) return;
    if (g.pad) g.pad->commit();
    const int group = std::exchange(due, -1);
    sum_in_node(ranges_of(group));
    if (wte_last && group + 1 == num_groups()) unite(InputsOf::last_micro_step);
    if (wte_last && group == 0) {
        unite(InputsOf::next_step);
        comm.finish(gradients_sent.back());  // brings the tokens of other nodes; has sent the sums of rows
        sum_in_node(rows_of_last_inputs());
    }
    const Messages messages = gradient_messages(group);
    gradients_sent[group] = comm.begin_exchange(messages.sends, messages.receives);
}

// The CPU sums the node's gradients in this process's buffer.
template <class Real>
void GradientExchange<Real>::sum_in_node(const std::vector<TensorRange>& ranges) {
    const std::vector<GradientSum<Real>> sums = sums_of(summed_ranges(ranges), g.pad, true);
    if (!g.pad || comm.local_size > 1) gradient_sums(nullptr, sums);
}

template <class Real>
typename GradientExchange<Real>::Messages GradientExchange<Real>::gradient_messages(int group) {
    Messages messages;
    Real* at = incoming.data() + incoming_of[group];
    for (const Shard& s : summed_shards(ranges_of(group))) {
        const size_t bytes = s.count * sizeof(Real);
        if (!is_mine(s)) {
            messages.sends.push_back({peer(owner_node(s)), in_buffer(comm.local_rank, s), bytes});
            continue;
        }
        for (int node = 0; node < comm.num_nodes; node++, at += s.count)
            if (node != comm.node) messages.receives.push_back({peer(node), at, bytes});
    }
    if (wte_last && group + 1 == num_groups()) add_sets(messages, InputsOf::last_micro_step);
    if (wte_last && group == 0) {
        add_sets(messages, InputsOf::next_step);
        add_row_gradients(messages);
    }
    return messages;
}

// The owner's sums become those over all nodes, in the order of nodes.
template <class Real>
void GradientExchange<Real>::sum_over_nodes(int group) {
    const int K = comm.num_nodes;
    const Real* at = incoming.data() + incoming_of[group];
    std::vector<GradientSum<Real>> sums;
    Copies copies;
    for (const Shard& s : summed_shards(ranges_of(group))) {
        if (!is_mine(s)) continue;
        Real* const sum = in_buffer(comm.local_rank, s);
        sums.push_back({.out = sum,
                        .copy = g.pad ? nullptr : gradients_of(s),
                        .inp = at,
                        .own = sum,
                        .n = s.count,
                        .stride = s.count,
                        .count = K,
                        .own_index = comm.node});
        copies.push_back({gradients_of(s), sum, s.count});
        at += K * s.count;
    }
    gradient_sums(nullptr, sums);
    if (g.pad) copy(copies);
}

template <class Real>
void GradientExchange<Real>::reduce_between_nodes() {
    Copies copies;
    std::vector<TensorRange> ranges = linear_weights(0, overlaps() ? lag() : g.config.num_layers);
    for (const TensorRange& range : other_ranges(g.config))
        if (!(wte_last && range.tensor == WTE)) ranges.push_back(range);
    if (wte_last)
        for (const TensorRange& range : rows_of_last_inputs()) ranges.push_back(range);
    on_launchpad ? add_gradient_copies(copies, ranges) : add_gradient_stores(copies, ranges);
    copy(copies);
    synchronize();
    for (int group = overlaps() ? 0 : num_groups() - 1; group >= 0; group--) {
        due = group;
        work();
    }
    // the last group is the last, since group 0 brings rows of its wte
    for (int i = num_groups() - 1; i >= 0; i--) {
        const int group = (i + num_groups() - 1) % num_groups();
        comm.finish(gradients_sent[group]);
        sum_over_nodes(group);
    }
}

// --- weights ---

template <class Real>
typename GradientExchange<Real>::Messages GradientExchange<Real>::weight_messages(int group) const {
    Messages messages;
    for (const Shard& s : summed_shards(ranges_of(group))) {
        Real* const weights = in_buffer(comm.local_rank, s);
        const size_t bytes = s.count * sizeof(Real);
        if (!is_mine(s)) messages.receives.push_back({peer(owner_node(s)), weights, bytes});
        for (int node = 0; is_mine(s) && node < comm.num_nodes; node++)
            if (node != comm.node) messages.sends.push_back({peer(node), weights, bytes});
    }
    if (wte_last && group == 0) add_row_weights(messages);
    return messages;
}

// The groups that are updated and stored, and have not been sent yet.
template <class Real>
void GradientExchange<Real>::send_weights(int end_group) {
    if (g.pad) g.pad->commit(true);
    has_all_weights = false;
    for (; num_sent < end_group; num_sent++) {
        const Messages messages = weight_messages(num_sent);
        weights_sent[num_sent] = comm.begin_exchange(messages.sends, messages.receives);
    }
    if (num_sent == num_groups()) num_sent = 0;
}

template <class Real>
int GradientExchange<Real>::weights_before(int layer) const {
    return layer == 0 && between_nodes() ? 0 : group_at(layer);
}

// The GPU may still run layers before these: nothing that it does reads or writes the messages. The rows
// differ from step to step, so no recording gathers them.
template <class Real>
void GradientExchange<Real>::receive_weights(int group) {
    if (g.pad) g.pad->commit();
    comm.finish(weights_sent[group]);
    comm.node_barrier();
    if (group > 0 || !wte_last) return;
    gather(token_rows(g.config, announced, 0, all_of_wte().count));
    if (!g.pad) return;
    g.pad->finish_copies();
    g.pad->commit();
}

// A GPU gathers a layer's weights during the layer before, if they have arrived.
template <class Real>
void GradientExchange<Real>::before_layer_between_nodes(int layer) {
    const bool begins_group = group_at(layer) >= 0;
    if (!g.pad) return layer ? gather(layer_ranges(layer)) : void();
    if (begins_group) gather(layer_ranges(layer));
    const bool next_arrived = layer + 1 >= first_end() && group_at(layer + 1) < 0;
    gather(next_arrived ? layer_ranges(layer + 1) : std::vector<TensorRange>());
}

template <class Real>
void GradientExchange<Real>::restore_weights() {
    if (between_nodes()) store_weights(everything);
}

#define INSTANTIATE(Real) template struct GradientExchange<Real>;
FOR_EACH_REAL(INSTANTIATE)
