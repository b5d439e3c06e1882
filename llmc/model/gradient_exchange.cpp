#include "llmc/model/gradient_exchange.h"

#include <algorithm>
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
    stride = ceil_div(stride, 4096) * 4096;  // whole pages
    everything = linear_weights(0, g.config.num_layers);
    for (const TensorRange& range : other_ranges(g.config)) everything.push_back(range);
    if (g.memory.use == MemoryUse::count) {
        count_memory();
        return;
    }
    buffers = static_cast<Real*>(comm.allocate_shared(stride * comm.local_size * sizeof(Real), "gradients"));
    for (const Shard& s : summed_shards(everything)) {
        if (!is_mine(s)) continue;
        own_sums.push_back({comm.num_nodes > 1 ? in_buffer(comm.local_rank, s) : gradients_of(s), s.count});
        if (comm.num_nodes > 1) incoming.resize(incoming.size() + comm.num_nodes * s.count);
    }
    import_buffers();
    allocate_gathered();
    if (weights_overlap()) exchange_weights();  // what the first forward pass gathers
}

// As if the launchpad imports the buffers. Its memory is theirs, too, unless the GPU is a discrete one.
template <class Real>
void GradientExchange<Real>::count_memory() {
    on_launchpad = g.pad;
    allocate_gathered();
    on_launchpad = false;
    if (g.memory.own_memory)
        g.memory.host_bytes += stride * sizeof(Real);
    else
        g.memory.count("exchange", stride * sizeof(Real));
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
    int64_t without = g.pad && !on_launchpad;
    comm.all_reduce_max(&without, 1);
    if (without && std::exchange(on_launchpad, false)) g.pad->unregister_buffer(buffers);
}

static size_t padded_count(const Shard& s) { return ceil_div(s.count, 64) * 64; }

// For the layer during which most is summed.
template <class Real>
void GradientExchange<Real>::allocate_gathered() {
    size_t most = 0;
    for (int layer = 1; on_launchpad && layer <= synchronization_layer(); layer++) {
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

// Copies between buffers and memory of the device; on a launchpad, they overlap with the commands that
// follow.
template <class Real>
void GradientExchange<Real>::copy(const Copies& copies) {
    std::vector<CopyRange> async;
    for (const auto& [to, from, n] : copies)
        if (on_launchpad)
            async.push_back({to, from, n * sizeof(Real)});
        else if (g.pad)
            is_in_buffers(to) ? g.memory.download(to, from, n) : g.memory.upload(to, from, n);
        else
            gradient_sum(nullptr, GradientSum<Real>{.out = to,
                                                    .inp = from,
                                                    .own = nullptr,
                                                    .n = n,
                                                    .stride = 0,
                                                    .count = 1,
                                                    .own_index = -1});
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

// Sums that go to other nodes, or are summed with theirs.
template <class Real>
void GradientExchange<Real>::add_sum_stores(Copies& copies, const std::vector<TensorRange>& ranges) const {
    if (comm.num_nodes == 1) return;
    for (const Shard& s : summed_shards(ranges))
        copies.push_back({in_buffer(comm.local_rank, s), gradients_of(s), s.count});
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
    add_gradient_stores(copies, linear_weights(layer + 1, layer + 2));
    if (g.pad) {
        const std::vector<TensorRange> arrived = summed_during(layer + 1);
        sum_gathered(arrived);
        add_sum_stores(copies, arrived);
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

// Where the launchpad has no access to the buffers, the CPU sums in this process's buffer.
template <class Real>
void GradientExchange<Real>::sum_in_buffers(const std::vector<TensorRange>& ranges) {
    const ConcurrentGroup group(pad());
    for (const Shard& s : summed_shards(ranges)) {
        Real* const own = in_buffer(comm.local_rank, s);
        Real* const gradients = gradients_of(s);
        if (sums_on_host()) g.memory.download(own, gradients, s.count);
        gradient_sum(pad(), GradientSum<Real>{.out = sums_on_host() ? own : gradients,
                                              .copy = !sums_on_host() && comm.num_nodes > 1 ? own : nullptr,
                                              .inp = in_buffer(0, s),
                                              .own = sums_on_host() ? own : gradients,
                                              .n = s.count,
                                              .stride = stride,
                                              .count = comm.local_size,
                                              .own_index = comm.local_rank});
        if (sums_on_host()) g.memory.upload(gradients, own, s.count);
    }
}

// Each owner's sums become those over all nodes, in the order of nodes.
template <class Real>
void GradientExchange<Real>::sum_between_nodes() {
    const int K = comm.num_nodes;
    std::vector<Message> sends, receives;
    std::vector<Shard> own;
    Real* at = incoming.data();
    for (const Shard& s : summed_shards(everything)) {
        const size_t bytes = s.count * sizeof(Real);
        if (!is_mine(s)) {
            sends.push_back({peer(owner_node(s)), in_buffer(comm.local_rank, s), bytes});
            continue;
        }
        own.push_back(s);
        for (int node = 0; node < K; node++, at += s.count)
            if (node != comm.node) receives.push_back({peer(node), at, bytes});
    }
    comm.exchange(sends, receives);
    at = incoming.data();
    Copies copies;
    for (const Shard& s : own) {
        Real* const sum = in_buffer(comm.local_rank, s);
        gradient_sum(nullptr, GradientSum<Real>{.out = sum,
                                                .inp = at,
                                                .own = sum,
                                                .n = s.count,
                                                .stride = s.count,
                                                .count = K,
                                                .own_index = comm.node});
        copies.push_back({gradients_of(s), sum, s.count});
        at += K * s.count;
    }
    copy(copies);
}

template <class Real>
double GradientExchange<Real>::sum_of_squares() {
    float norm[2];
    if (comm.num_nodes > 1) {
        global_norm<Real>(nullptr, {.norm_and_scale = norm, .gradients = own_sums, .max_norm = 0});
    } else {
        global_norm<Real>(g.pad,
                          {.norm_and_scale = &g.stats->gradient_norm, .gradients = own_sums, .max_norm = 0});
        g.memory.download(norm, &g.stats->gradient_norm, 2);
    }
    return double(norm[0]) * double(norm[0]);
}

template <class Real>
void GradientExchange<Real>::reduce(float max_norm) {
    const std::vector<TensorRange> others = other_ranges(g.config);
    Copies copies;
    add_gradient_stores(copies, linear_weights(0, overlaps() ? 1 : g.config.num_layers));
    add_gradient_stores(copies, others);
    copy(copies);
    synchronize();
    sum_in_buffers(linear_weights(0, first_summed_early()));
    sum_in_buffers(others);
    if (comm.num_nodes > 1) {
        if (g.pad) g.pad->commit(true);
        sum_between_nodes();
    }
    StepStats stats = {};
    double sums[2] = {0, sum_of_squares()};
    g.memory.download(&stats, g.stats, 1);
    sums[0] = stats.loss;
    comm.all_reduce_sum(sums, 2);  // every process has read the gradients that it sums
    stats.loss = float(sums[0]);
    finish_global_norm<Real>({.norm_and_scale = &stats.gradient_norm,
                              .gradients = own_sums,
                              .max_norm = max_norm,
                              .unscale = 1 / g.gradient_scale,
                              .loss = &stats.loss},
                             sums[1]);
    g.memory.upload(g.stats, &stats, 1);
}

// --- weights ---

template <class Real>
std::vector<TensorRange> GradientExchange<Real>::first_weights() const {
    std::vector<TensorRange> ranges = other_ranges(g.config);
    for (const TensorRange& range : linear_weights(0, end_first_layers())) ranges.push_back(range);
    return ranges;
}

template <class Real>
void GradientExchange<Real>::store_weights(const std::vector<TensorRange>& ranges) {
    Copies copies;
    add_weight_stores(copies, ranges);
    copy(copies);
}

template <class Real>
void GradientExchange<Real>::gather_first_weights() {
    Copies copies;
    add_weight_gathers(copies, first_weights());
    copy(copies);
    g.pad->finish_copies();
}

// The layers after the first ones have two halves, stored during layers 0 and 1.
template <class Real>
int GradientExchange<Real>::middle_layer() const {
    return end_first_layers() + int(ceil_div(g.config.num_layers - end_first_layers(), 2));
}

template <class Real>
bool GradientExchange<Real>::synchronizes_before(int layer) const {
    const int L = g.config.num_layers;
    return (layer == 1 && end_first_layers() < L) || (layer == 2 && middle_layer() < L);
}

// copy() first finishes the copies of the layer before, among them this layer's weights.
template <class Real>
void GradientExchange<Real>::before_layer(int layer) {
    check_synchronized(synchronizes_before(layer), layer);
    Copies copies;
    if (layer == 0) add_weight_stores(copies, linear_weights(end_first_layers(), middle_layer()));
    if (layer == 1) add_weight_stores(copies, linear_weights(middle_layer(), g.config.num_layers));
    if (layer > 0) add_weight_gathers(copies, linear_weights(layer + 1, layer + 2));
    copy(copies);
}

template <class Real>
void GradientExchange<Real>::send_weights_between_nodes() {
    std::vector<Message> sends, receives;
    for (const Shard& s : summed_shards(everything)) {
        Real* const weights = in_buffer(comm.local_rank, s);
        const size_t bytes = s.count * sizeof(Real);
        if (!is_mine(s)) receives.push_back({peer(owner_node(s)), weights, bytes});
        for (int node = 0; is_mine(s) && node < comm.num_nodes; node++)
            if (node != comm.node) sends.push_back({peer(node), weights, bytes});
    }
    comm.exchange(sends, receives);
}

template <class Real>
void GradientExchange<Real>::exchange_weights() {
    store_weights(everything);
    if (g.pad) g.pad->commit(true);
    if (comm.num_nodes > 1) send_weights_between_nodes();
    comm.node_barrier();
    Copies copies;
    add_weight_gathers(copies, everything);
    copy(copies);
    if (g.pad) g.pad->finish_copies();
}

template <class Real>
void GradientExchange<Real>::run_all_kernels() {
    if (!on_launchpad) return;
    sum_in_buffers(everything);
    for (int layer = 1; layer <= synchronization_layer(); layer++) sum_gathered(summed_during(layer));
    global_norm<Real>(g.pad,
                      {.norm_and_scale = &g.stats->gradient_norm, .gradients = own_sums, .max_norm = 0});
}

#define INSTANTIATE(Real) template struct GradientExchange<Real>;
FOR_EACH_REAL(INSTANTIATE)
