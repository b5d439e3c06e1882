#include "llmc/model/gradient_exchange.h"

#include <algorithm>
#include <exception>
#include <utility>

// --- construction ---

template <class Real>
GradientExchange<Real>::GradientExchange(GPT2<Real>& model, const Ownership& table, Communicator& job)
    : g(model), ownership(table), comm(job) {
    for (int node = 0; node < comm.num_nodes; node++)
        if (comm.first_ranks[node + 1] - comm.first_ranks[node] != comm.local_size)
            fail("all nodes need the same number of processes: %d here, %d on node %d", comm.local_size,
                 comm.first_ranks[node + 1] - comm.first_ranks[node], node);
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) {
        offsets[i] = stride;
        stride += ceil_div(parameter_size(g.config, i), 64) * 64;
    }
    sets_offset = stride;
    if (between_nodes()) stride += 2 * token_set_words(g.config) * sizeof(uint32_t) / sizeof(Real);
    stride = ceil_div(stride, 4096) * 4096;  // whole pages
    everything = group_ranges(g.config, 0, g.config.num_layers);
    if (g.memory.use == MemoryUse::count) {
        count_memory();
        return;
    }
    buffers = static_cast<Real*>(comm.allocate_shared(stride * comm.local_size * sizeof(Real), "gradients"));
    for (const Shard& s : summed_shards(everything))
        if (is_mine(s))
            own_sums.push_back({between_nodes() ? in_buffer(comm.local_rank, s) : gradients_of(s), s.count});
    import_buffers();
    incoming.resize(incoming_elements());
    allocate_gathered();
    if (!weights_overlap()) return;
    restore_weights();  // for the first forward pass, which gathers them
    between_nodes() ? send_weights(num_groups()) : exchange_weights();
}

// As if the launchpad imports the buffers. Its memory is theirs, too, unless the GPU is a discrete one.
template <class Real>
void GradientExchange<Real>::count_memory() {
    on_launchpad = g.pad;
    allocate_gathered();
    on_launchpad = false;
    form_groups(g.acts.B * g.acts.T);
    const size_t bytes = (stride + incoming_elements()) * sizeof(Real) +
                         (2 * comm.num_nodes + 1) * token_set_words(g.config) * sizeof(uint32_t);
    if (g.memory.own_memory)
        g.memory.host_bytes += bytes;
    else
        g.memory.count("exchange", bytes);
}

// Lets the device read and write the buffers. If one process's device cannot import host memory, all
// processes download their gradients, sum them on the CPU and upload them: the steps of all must be the same.
template <class Real>
void GradientExchange<Real>::import_buffers() {
    if (g.pad) try {
            g.pad->register_buffer(buffers, stride * comm.local_size * sizeof(Real));
            on_launchpad = true;
        } catch (const DeviceLost&) {
            throw;
        } catch (const Error&) {
        }
    int64_t any[] = {g.pad && !on_launchpad, !on_launchpad, on_launchpad, g.acts.B * g.acts.T};
    comm.all_reduce_max(any, 4);
    some_cannot_import = any[0];
    all_on_launchpads = !any[1];
    some_on_launchpad = any[2] && !some_cannot_import;
    if (some_cannot_import && std::exchange(on_launchpad, false)) g.pad->unregister_buffer(buffers);
    form_groups(any[3]);
}

static size_t padded_count(const Shard& s) { return ceil_div(s.count, 64) * 64; }

// For the layer during which most is summed.
template <class Real>
void GradientExchange<Real>::allocate_gathered() {
    size_t most = 0;
    for (int layer = 1; on_launchpad && !between_nodes() && layer <= synchronization_layer(); layer++) {
        size_t n = 0;
        for (const Shard& s : summed_shards(summed_during(layer))) n += comm.local_size * padded_count(s);
        most = std::max(most, n);
    }
    g.memory.kind = "exchange";
    if (most) gathered = g.memory.template allocate<Real>(most, "gradients of other processes");
}

template <class Real>
GradientExchange<Real>::~GradientExchange() {
    if (on_launchpad) g.pad->unregister_buffer(buffers);
    if (!std::uncaught_exceptions()) {
        comm.free_shared(buffers);
        return;
    }
    // An exception ends the job, and messages may be under way: their memory stays.
    new std::vector(std::move(incoming));
    for (std::vector<TokenSet>& of_nodes : sets) new std::vector(std::move(of_nodes));
}

template <class Real>
void GradientExchange<Real>::synchronize() {
    if (g.pad) g.pad->commit(true);
    comm.node_barrier();
    synchronized = true;
}

// Called for each layer: whether the processes synchronized since the call for the layer before.
template <class Real>
void GradientExchange<Real>::check_synchronized(bool needed, int layer) {
    if (!std::exchange(synchronized, false) && needed)
        fail("gradient exchange: synchronize() comes before the call for layer %d", layer);
}

// --- shards and copies ---

template <class Real>
std::vector<Shard> GradientExchange<Real>::shards_in(const std::vector<TensorRange>& ranges) const {
    std::vector<Shard> shards;
    for (const TensorRange& range : ranges)
        for (const Shard& s : ownership.within(range)) shards.push_back(s);
    return shards;
}

template <class Real>
std::vector<Shard> GradientExchange<Real>::summed_shards(const std::vector<TensorRange>& ranges) const {
    std::vector<Shard> shards = shards_in(ranges);
    std::erase_if(shards, [this](const Shard& s) { return owner_local_rank(s) != comm.local_rank; });
    return shards;
}

template <class Real>
std::vector<Shard> GradientExchange<Real>::summed_ranges(const std::vector<TensorRange>& ranges) const {
    std::vector<Shard> joined;
    for (const Shard& s : summed_shards(ranges))
        if (!joined.empty() && joined.back().tensor == s.tensor &&
            joined.back().first + joined.back().count == s.first)
            joined.back().count += s.count;
        else
            joined.push_back(s);
    return joined;
}

// Copies between buffers and memory of the device; on a launchpad, they overlap with the commands that
// follow.
template <class Real>
void GradientExchange<Real>::copy(const Copies& copies) {
    std::vector<CopyRange> async;
    std::vector<GradientSum<Real>> on_cpu;
    for (const auto& [to, from, n] : copies)
        if (on_launchpad)
            async.push_back({to, from, n * sizeof(Real)});
        else if (g.pad)
            is_in_buffers(to) ? g.memory.download(to, from, n) : g.memory.upload(to, from, n);
        else
            on_cpu.push_back(
                {.out = to, .inp = from, .own = nullptr, .n = n, .stride = 0, .count = 1, .own_index = -1});
    gradient_sums(nullptr, on_cpu);
    if (on_launchpad) g.pad->copy_async(async);
}

// Neighbouring shards of other ranks are one copy.
template <class Real>
void GradientExchange<Real>::add_gradient_stores(Copies& copies,
                                                 const std::vector<TensorRange>& ranges) const {
    Shard last = {.tensor = -1, .first = 0, .count = 0, .owner = 0};
    for (const Shard& s : shards_in(ranges)) {
        if (owner_local_rank(s) == comm.local_rank) continue;
        if (s.tensor == last.tensor && s.first == last.first + last.count)
            copies.back().n += s.count;
        else
            copies.push_back({in_buffer(comm.local_rank, s), gradients_of(s), s.count});
        last = s;
    }
}

template <class Real>
void GradientExchange<Real>::add_weight_stores(Copies& copies, const std::vector<TensorRange>& ranges) const {
    for (const Shard& s : shards_in(ranges))
        if (is_mine(s)) copies.push_back({in_buffer(comm.local_rank, s), weights_of(s), s.count});
}

template <class Real>
void GradientExchange<Real>::add_weight_gathers(Copies& copies,
                                                const std::vector<TensorRange>& ranges) const {
    for (const Shard& s : shards_in(ranges))
        if (!is_mine(s)) copies.push_back({weights_of(s), in_buffer(owner_local_rank(s), s), s.count});
}

template <class Real>
std::vector<typename GradientExchange<Real>::GatheredShard> GradientExchange<Real>::gathered_shards(
    const std::vector<TensorRange>& ranges) const {
    std::vector<GatheredShard> all;
    Real* at = gathered;
    for (const Shard& s : summed_shards(ranges)) {
        all.push_back({.shard = s, .gradients = at, .stride = padded_count(s)});
        at += comm.local_size * padded_count(s);
    }
    return all;
}

template <class Real>
void GradientExchange<Real>::add_gradient_gathers(Copies& copies,
                                                  const std::vector<TensorRange>& ranges) const {
    for (const auto& [shard, gathered_gradients, padded] : gathered_shards(ranges))
        for (int rank = 0; rank < comm.local_size; rank++)
            if (rank != comm.local_rank)
                copies.push_back({gathered_gradients + rank * padded, in_buffer(rank, shard), shard.count});
}

// All gradients, also this process's own: the CPU sums them.
template <class Real>
void GradientExchange<Real>::add_gradient_copies(Copies& copies,
                                                 const std::vector<TensorRange>& ranges) const {
    for (const auto& [tensor, first, count] : ranges)
        copies.push_back({buffer(comm.local_rank) + offsets[tensor] + first, g.grads[tensor] + first, count});
}

// --- gradients ---

// The layers from here on are summed during the backward pass, in which processes synchronize at layer S:
//
//     backward pass of layer    L-1 ... S+2 S+1 | S   S-1 ... 1 | 0
//     stored after it                   ... S+2 | S+1 S   ... 2 | 1
//     summed during it                          | S+2 to L-1    | after the backward pass: 0 to S+1
template <class Real>
int GradientExchange<Real>::first_summed_early() const {
    return overlaps() && synchronization_layer() >= 0 ? synchronization_layer() + 2 : g.config.num_layers;
}

// Between nodes, a GPU of several in a node stores its own gradients where the others have gathered weights.
template <class Real>
int GradientExchange<Real>::synchronization_layer() const {
    const int L = g.config.num_layers;
    if (between_nodes()) return some_on_launchpad && comm.local_size > 1 ? L - 1 : -1;
    return L < 4 ? -1 : std::max(1, L / 6);
}

// Between the synchronization and layer 0, the gradients stored before it, the same number during each layer.
template <class Real>
std::vector<TensorRange> GradientExchange<Real>::summed_during(int layer) const {
    const int L = g.config.num_layers, early = first_summed_early();
    const int steps = synchronization_layer(), done = synchronization_layer() - layer;
    if (layer < 1 || layer > synchronization_layer()) return {};
    return linear_weights(early + (L - early) * done / steps, early + (L - early) * (done + 1) / steps);
}

// Stores the weight gradients of the layer above, since the reduction of this layer's may be postponed. From
// the synchronization on, sums gradients: on a launchpad, those that arrived during this layer, while the
// next ones start.
template <class Real>
void GradientExchange<Real>::after_layer(int layer) {
    check_synchronized(layer == synchronization_layer(), layer);
    if (!overlaps()) return;
    Copies copies;
    if (between_nodes()) {
        const std::vector<TensorRange> stored = layer_ranges(layer + lag());
        g.pad ? add_gradient_copies(copies, stored) : add_gradient_stores(copies, stored);
        return copy(copies);
    }
    add_gradient_stores(copies, linear_weights(layer + 1, layer + 2));
    if (g.pad) {
        const std::vector<TensorRange> arrived = summed_during(layer + 1);
        sum_gathered(arrived);
        add_gradient_gathers(copies, summed_during(layer));
    }
    copy(copies);
    if (!g.pad) sum_in_buffers(summed_during(layer));
}

// After all copies.
template <class Real>
void GradientExchange<Real>::sum_gathered(const std::vector<TensorRange>& ranges) {
    if (ranges.empty()) return;
    g.pad->finish_copies();
    const ConcurrentGroup group(g.pad);
    for (const auto& [shard, gathered_gradients, padded] : gathered_shards(ranges))
        gradient_sum(g.pad, GradientSum<Real>{.out = gradients_of(shard),
                                              .inp = gathered_gradients,
                                              .own = gradients_of(shard),
                                              .n = shard.count,
                                              .stride = padded,
                                              .count = comm.local_size,
                                              .own_index = comm.local_rank});
}

// Of all processes of the node. This one's gradients are in its buffer if from_buffer, or come there first
// where the launchpad has no access to it.
template <class Real>
std::vector<GradientSum<Real>> GradientExchange<Real>::sums_of(const std::vector<Shard>& shards,
                                                               bool from_buffer, bool to_buffer) {
    std::vector<GradientSum<Real>> sums;
    for (const Shard& s : shards) {
        Real* const own = in_buffer(comm.local_rank, s);
        if (sums_on_host()) g.memory.download(own, gradients_of(s), s.count);
        sums.push_back({.out = to_buffer ? own : gradients_of(s),
                        .inp = in_buffer(0, s),
                        .own = from_buffer ? own : gradients_of(s),
                        .n = s.count,
                        .stride = stride,
                        .count = comm.local_size,
                        .own_index = comm.local_rank});
    }
    return sums;
}

// Where the launchpad has no access to the buffers, the CPU sums in this process's buffer.
template <class Real>
void GradientExchange<Real>::sum_in_buffers(const std::vector<TensorRange>& ranges) {
    const std::vector<Shard> shards = summed_ranges(ranges);
    gradient_sums(pad(), sums_of(shards, sums_on_host(), sums_on_host()));
    for (const Shard& s : shards)
        if (sums_on_host()) g.memory.upload(gradients_of(s), in_buffer(comm.local_rank, s), s.count);
}

template <class Real>
double GradientExchange<Real>::sum_of_squares() {
    float norm[2];
    if (between_nodes()) {
        global_norm<Real>(nullptr, {.norm_and_scale = norm, .gradients = own_sums, .max_norm = 0});
    } else {
        global_norm<Real>(g.pad,
                          {.norm_and_scale = &g.stats->gradient_norm, .gradients = own_sums, .max_norm = 0});
        g.memory.download(norm, &g.stats->gradient_norm, 2);
    }
    return double(norm[0]) * double(norm[0]);
}

template <class Real>
void GradientExchange<Real>::reduce_in_node() {
    const std::vector<TensorRange> others = other_ranges(g.config);
    Copies copies;
    add_gradient_stores(copies, linear_weights(0, overlaps() ? 1 : g.config.num_layers));
    add_gradient_stores(copies, others);
    copy(copies);
    synchronize();
    sum_in_buffers(linear_weights(0, first_summed_early()));
    sum_in_buffers(others);
}

template <class Real>
void GradientExchange<Real>::reduce(float max_norm, int64_t tokens, int64_t counted) {
    between_nodes() ? reduce_between_nodes() : reduce_in_node();
    StepStats stats = {};
    double sums[] = {0, sum_of_squares(), double(counted)};
    g.memory.download(&stats, g.stats, 1);
    sums[0] = stats.loss;
    comm.all_reduce_sum(sums, 3);  // every process has read the gradients that it sums
    stats.loss = float(sums[0]);
    const float weight = token_weight(tokens, int64_t(sums[2]));
    finish_global_norm<Real>({.norm_and_scale = &stats.gradient_norm,
                              .gradients = own_sums,
                              .max_norm = max_norm,
                              .unscale = 1 / g.gradient_scale,
                              .loss = &stats.loss,
                              .weight = &weight},
                             sums[1]);
    g.memory.upload(g.stats, &stats, 1);
}

// --- weights ---

template <class Real>
void GradientExchange<Real>::store_weights(const std::vector<TensorRange>& ranges) {
    Copies copies;
    add_weight_stores(copies, ranges);
    copy(copies);
}

template <class Real>
void GradientExchange<Real>::gather(const std::vector<TensorRange>& ranges) {
    Copies copies;
    add_weight_gathers(copies, ranges);
    copy(copies);
}

template <class Real>
void GradientExchange<Real>::gather_first_weights() {
    gather(between_nodes() ? ranges_of(0) : first_weights());
    if (g.pad) g.pad->finish_copies();
}

template <class Real>
void GradientExchange<Real>::finish_update() {
    between_nodes() ? send_weights(num_groups()) : synchronize();
}

// The layers after the first ones have two halves, stored during layers 0 and 1.
template <class Real>
int GradientExchange<Real>::middle_layer() const {
    return end_first_layers() + int(ceil_div(g.config.num_layers - end_first_layers(), 2));
}

template <class Real>
bool GradientExchange<Real>::synchronizes_before(int layer) const {
    const int L = g.config.num_layers;
    if (between_nodes()) return false;
    return (layer == 1 && end_first_layers() < L) || (layer == 2 && middle_layer() < L);
}

// copy() first finishes the copies of the layer before, among them this layer's weights.
template <class Real>
void GradientExchange<Real>::before_layer(int layer) {
    check_synchronized(synchronizes_before(layer), layer);
    if (between_nodes()) return before_layer_between_nodes(layer);
    Copies copies;
    if (layer == 0) add_weight_stores(copies, linear_weights(end_first_layers(), middle_layer()));
    if (layer == 1) add_weight_stores(copies, linear_weights(middle_layer(), g.config.num_layers));
    if (layer > 0) add_weight_gathers(copies, linear_weights(layer + 1, layer + 2));
    copy(copies);
}

// --- all weights ---

template <class Real>
void GradientExchange<Real>::exchange_weights() {
    if (!between_nodes() || !weights_overlap()) store_weights(everything);
    if (between_nodes() && !weights_overlap()) send_weights(num_groups());
    if (g.pad) g.pad->commit(true);
    for (int group = 0; between_nodes() && group < num_groups(); group++) comm.finish(weights_sent[group]);
    comm.node_barrier();
    gather(everything);
    if (g.pad) g.pad->finish_copies();
    has_all_weights = true;
}

template <class Real>
void GradientExchange<Real>::run_all_kernels() {
    if (!on_launchpad || between_nodes()) return;
    sum_in_buffers(everything);
    for (int layer = 1; layer <= synchronization_layer(); layer++) sum_gathered(summed_during(layer));
    global_norm<Real>(g.pad,
                      {.norm_and_scale = &g.stats->gradient_norm, .gradients = own_sums, .max_norm = 0});
}

#define INSTANTIATE(Real) template struct GradientExchange<Real>;
FOR_EACH_REAL(INSTANTIATE)
