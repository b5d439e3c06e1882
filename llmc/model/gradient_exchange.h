// Data parallelism over shared host memory: the gradients of all processes of a job, summed into each of
// them; or, with ZeRO stage 1, into the process that updates the weights, which then go to all others.
//
// Each process of a node has a row of shared memory of the size of its gradients. Of every tensor (of a
// linear layer's weights: of every layer), it owns one part. A step has three phases, of which 1 and 2 are a
// reduce-scatter and 3 is an all-gather:
//   1. During the last backward pass, each process copies the parts that others own to its row, layer by
//      layer (send).
//   2. It sums the parts that it owns over all rows, in the order of ranks, and publishes the sums in its
//      row. The processes meet twice. Layers whose gradients are there after five sixths of the backward
//      pass are summed during the rest of it, all others after it. The norm follows from all owners' sums of
//      squares.
//   3. During the next forward pass, it copies the others' sums to its gradients, before the update that
//      needs them (receive).
// With ZeRO stage 1, the sums of divided tensors (OptimizerShare) are not published. The owner updates its
// part of the weights and publishes those, at the same place: see divided_update.h.
//
// Between nodes, the ranks with the same local rank exchange messages. After phase 2 within a node, each of K
// such ranks owns one of K pieces of its part: it sums that piece over all nodes and, unless the tensor is
// divided, sends the sum to the others. Nothing overlaps with these messages.
//
// On a GPU, all that runs beside the passes is copied by LaunchPad::copy_beside(), on its copy engines if it
// has them. What is summed then comes to memory of the device first, and leaves from there: a kernel that
// reads the rows itself would take SMs for as long as the bus takes. Only the sums that nothing hides are
// such kernels.
//
// Every process ends with identical weights, and the same number of processes gives bit-identical runs. A
// process overwrites its sums only after a barrier in the next backward pass: all others have read them then.
#pragma once
#include <algorithm>
#include <utility>
#include <vector>

#include "llmc/distributed/communicator.h"
#include "llmc/layers/gradient_sum.h"
#include "llmc/model/gpt2_update.h"

template <class Real>
struct GradientExchange {
    // Allocates the shared memory, which the model's launchpad imports if it can. All processes call it.
    // Error if there is not enough shared memory. All nodes must have the same number of processes.
    GradientExchange(GPT2<Real>& model, Communicator& job);
    GradientExchange(const GradientExchange&) = delete;
    ~GradientExchange();

    int num_processes() const { return comm.size; }
    // A GPU that cannot import host memory sends and receives everything in reduce() and exchange_weights().
    bool overlaps() const { return !g.pad || on_launchpad; }
    // Whether gpt2_divided_update_and_forward() can run.
    bool weights_overlap() const { return on_launchpad && comm.num_nodes == 1; }

    // After the backward pass of a layer: starts what may run beside the layers below it. Before that, the
    // processes meet at the end of one layer, after some five sixths of the pass; -1: the model has too few.
    void run_in_background(int layer);
    int meeting_layer() const { return g.config.num_layers < 4 ? -1 : std::max(1, g.config.num_layers / 6); }
    void meet();  // waits for the GPU, then for the other processes
    // After the backward pass: does the rest of phases 1 and 2. g.stats[0] becomes the sum of the losses, [1]
    // and [2] the norm and the clip factor, as gpt2_gradient_norm() computes them.
    void reduce(float max_norm);
    // Phase 3: see GradientArrival. With ZeRO, only tensors that are not divided are received.
    void receive_in_background(int layer);
    void receive_early();
    void receive_all();

    // ZeRO stage 1: copies this process's part of the updated weights to its row, and the other parts to its
    // weights, beside the commands that follow (LaunchPad::copy_beside). All processes must have met between
    // the publication of a tensor and its reception; exchange_weights() does all of that for all tensors.
    void copy_weights(const std::vector<TensorRange>& published, const std::vector<TensorRange>& received);
    void exchange_weights();

    // The kernels of all phases, for LaunchPad::dry_run().
    void run_all_kernels();

   private:
    // Elements of a tensor that lie in one piece and are divided among the processes.
    struct Unit {
        int tensor;
        size_t first, n;
        size_t offset;  // in a row
    };
    std::vector<Unit> units_of(const std::vector<TensorRange>& all) const;
    // The part that a process of this node owns, and the piece of this process's part that a node owns.
    Range part(const Unit& u, int local_rank) const;
    Range piece(const Unit& u, int node) const {
        return part_of(u.n, comm.local_rank * comm.num_nodes + node, comm.size);
    }
    // In this process's row.
    Real* in_row(const Unit& u, const Range& range) const {
        return row(comm.local_rank) + u.offset + range.first;
    }
    Real* gradients_of(const Unit& u) const { return g.grads[u.tensor] + u.first; }
    void import_rows();
    void allocate_fetched();
    // Copies between rows and memory of the device. On a launchpad, they run beside the commands that follow.
    struct Copy {
        Real* to;
        const Real* from;
        size_t n;
    };
    using Copies = std::vector<Copy>;
    void copy(const Copies& copies);
    void finish_copies() {
        if (g.pad) g.pad->finish_copies();
    }
    void add_sends(Copies& copies, const std::vector<Unit>& units) const;
    // This process's part of a unit, and the other processes' gradients of it, which have come to the device:
    // a row for each process of the node.
    struct Fetched {
        Unit unit;
        Range own;
        Real* rows;
        size_t stride;
    };
    std::vector<Fetched> fetched_of(const std::vector<Unit>& units) const;
    size_t fetched_stride(const Unit& u) const { return ceil_div(part(u, comm.local_rank).count, 64) * 64; }
    void add_fetches(Copies& copies, const std::vector<Unit>& units) const;
    void sum_fetched(const std::vector<Unit>& units);
    void add_publications(Copies& copies, const std::vector<Unit>& units) const;
    bool publishes(const Unit& u) const { return comm.num_nodes > 1 || !g.share.divides(u.tensor); }
    std::vector<Unit> summed_beside(int layer) const;
    void add_receptions(Copies& copies, const std::vector<Unit>& units, Real* const* tensors) const;
    void receive_gradients(const std::vector<Unit>& units);
    void receive_own_pieces();
    void sum_between_nodes();
    void gather_between_nodes(const std::vector<Unit>& units);
    double sum_of_squares();
    void sum_own_parts(const std::vector<Unit>& units);
    std::vector<Unit> weights_of(int first_layer, int end_layer) const {
        return units_of(layer_weights(g.config, first_layer, end_layer));
    }
    std::vector<Unit> other_tensors() const;
    // The layers from here on are summed during the backward pass.
    int first_summed_early() const {
        return overlaps() && meeting_layer() >= 0 ? meeting_layer() + 2 : g.config.num_layers;
    }
    Real* row(int rank) const { return rows + rank * stride; }
    bool in_rows(const Real* p) const { return p >= rows && p < rows + comm.local_size * stride; }

    GPT2<Real>& g;
    Communicator& comm;
    size_t offsets[NUM_PARAMETER_TENSORS];  // of the tensors in a row
    size_t stride = 0;                      // elements of a row
    Real* rows = nullptr;                   // (local_size, stride), shared
    bool on_launchpad = false;              // the launchpad reads and writes the rows
    Real* fetched = nullptr;                // on the device: the rows of Fetched
    std::vector<Unit> all_units;
    std::vector<GradientSlice<Real>>
        own_parts;               // to compute the norm: of the gradients, or pieces in the row
    std::vector<Real> incoming;  // pieces of other nodes
};

template <class Real>
GradientExchange<Real>::GradientExchange(GPT2<Real>& model, Communicator& job) : g(model), comm(job) {
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) {
        offsets[i] = stride;
        stride += ceil_div(parameter_size(g.config, i), 64) * 64;
    }
    stride = ceil_div(stride, 4096) * 4096;  // whole pages
    rows = static_cast<Real*>(comm.allocate_shared(stride * comm.local_size * sizeof(Real), "gradients"));
    all_units = weights_of(0, g.config.num_layers);
    for (const Unit& u : other_tensors()) all_units.push_back(u);
    for (const Unit& u : all_units) {
        const Range own = piece(u, comm.node);
        Real* const at = comm.num_nodes > 1 ? in_row(u, own) : gradients_of(u) + own.first;
        if (own.count) own_parts.push_back({at, own.count});
        if (comm.num_nodes > 1) incoming.resize(incoming.size() + comm.num_nodes * own.count);
    }
    import_rows();
    allocate_fetched();
}

// Lets the device read and write the rows. If one process's device cannot import host memory, all processes
// download their gradients, sum them on the CPU and upload them: the steps of all must be the same.
template <class Real>
void GradientExchange<Real>::import_rows() {
    if (g.pad) try {
            g.pad->register_buffer(rows, stride * comm.local_size * sizeof(Real));
            on_launchpad = true;
        } catch (const Error&) {
        }
    int64_t without = g.pad && !on_launchpad;
    comm.all_reduce_max(&without, 1);
    if (without && std::exchange(on_launchpad, false)) g.pad->unregister_buffer(rows);
}

// For the layer beside which most is summed.
template <class Real>
void GradientExchange<Real>::allocate_fetched() {
    size_t most = 0;
    for (int layer = 1; on_launchpad && layer <= meeting_layer(); layer++) {
        size_t n = 0;
        for (const Unit& u : summed_beside(layer)) n += comm.local_size * fetched_stride(u);
        most = std::max(most, n);
    }
    if (most) fetched = g.memory.template allocate<Real>(most, "gradients of other processes");
}

template <class Real>
GradientExchange<Real>::~GradientExchange() {
    if (on_launchpad) g.pad->unregister_buffer(rows);
}

template <class Real>
std::vector<typename GradientExchange<Real>::Unit> GradientExchange<Real>::units_of(
    const std::vector<TensorRange>& all) const {
    std::vector<Unit> units;
    for (const TensorRange& e : all)
        units.push_back({e.tensor, e.first, e.count, offsets[e.tensor] + e.first});
    return units;
}

template <class Real>
Range GradientExchange<Real>::part(const Unit& u, int local_rank) const {
    const int K = comm.num_nodes;
    const size_t first = part_of(u.n, local_rank * K, comm.size).first;
    const Range last = part_of(u.n, local_rank * K + K - 1, comm.size);
    return {first, last.first + last.count - first};
}

template <class Real>
void GradientExchange<Real>::copy(const Copies& copies) {
    std::vector<CopyRange> beside;
    for (const auto& [to, from, n] : copies)
        if (on_launchpad)
            beside.push_back({to, from, n * sizeof(Real)});
        else if (g.pad)
            in_rows(to) ? g.memory.download(to, from, n) : g.memory.upload(to, from, n);
        else
            gradient_sum_cpu(GradientSum<Real>{
                .out = to, .inp = from, .own = nullptr, .n = n, .stride = 0, .count = 1, .own_index = -1});
    if (on_launchpad) g.pad->copy_beside(beside);
}

template <class Real>
void GradientExchange<Real>::add_sends(Copies& copies, const std::vector<Unit>& units) const {
    for (const Unit& u : units) {
        const Range own = part(u, comm.local_rank);
        const size_t after = own.first + own.count;
        Real* const to = row(comm.local_rank) + u.offset;
        Real* const from = gradients_of(u);
        if (own.first) copies.push_back({to, from, own.first});
        if (after < u.n) copies.push_back({to + after, from + after, u.n - after});
    }
}

template <class Real>
std::vector<typename GradientExchange<Real>::Fetched> GradientExchange<Real>::fetched_of(
    const std::vector<Unit>& units) const {
    std::vector<Fetched> all;
    Real* at = fetched;
    for (const Unit& u : units) {
        const Range own = part(u, comm.local_rank);
        all.push_back({.unit = u, .own = own, .rows = at, .stride = fetched_stride(u)});
        at += comm.local_size * fetched_stride(u);
    }
    return all;
}

template <class Real>
void GradientExchange<Real>::add_fetches(Copies& copies, const std::vector<Unit>& units) const {
    for (const Fetched& f : fetched_of(units))
        for (int rank = 0; rank < comm.local_size; rank++)
            if (rank != comm.local_rank && f.own.count)
                copies.push_back(
                    {f.rows + rank * f.stride, row(rank) + f.unit.offset + f.own.first, f.own.count});
}

// After all copies.
template <class Real>
void GradientExchange<Real>::sum_fetched(const std::vector<Unit>& units) {
    if (units.empty()) return;
    finish_copies();
    const ConcurrentGroup group(g.pad);
    for (const Fetched& f : fetched_of(units)) {
        Real* const gradients = gradients_of(f.unit) + f.own.first;
        gradient_sum(g.pad, GradientSum<Real>{.out = gradients,
                                              .inp = f.rows,
                                              .own = gradients,
                                              .n = f.own.count,
                                              .stride = f.stride,
                                              .count = comm.local_size,
                                              .own_index = comm.local_rank});
    }
}

template <class Real>
void GradientExchange<Real>::add_publications(Copies& copies, const std::vector<Unit>& units) const {
    for (const Unit& u : units) {
        const Range own = part(u, comm.local_rank);
        if (publishes(u) && own.count)
            copies.push_back({in_row(u, own), gradients_of(u) + own.first, own.count});
    }
}

template <class Real>
void GradientExchange<Real>::add_receptions(Copies& copies, const std::vector<Unit>& units,
                                            Real* const* tensors) const {
    for (const Unit& u : units)
        for (int rank = 0; rank < comm.local_size; rank++) {
            const Range theirs = part(u, rank);
            const bool is_there = rank == comm.local_rank && comm.num_nodes == 1;
            if (!is_there && theirs.count)
                copies.push_back({tensors[u.tensor] + u.first + theirs.first,
                                  row(rank) + u.offset + theirs.first, theirs.count});
        }
}

template <class Real>
void GradientExchange<Real>::receive_gradients(const std::vector<Unit>& units) {
    std::vector<Unit> published = units;
    std::erase_if(published, [&](const Unit& u) { return g.share.divides(u.tensor); });
    Copies copies;
    add_receptions(copies, published, g.grads);
    copy(copies);
}

// What the update of a divided tensor reads, if the sum comes from several nodes.
template <class Real>
void GradientExchange<Real>::receive_own_pieces() {
    if (comm.num_nodes == 1) return;
    Copies copies;
    for (const Unit& u : all_units) {
        const Range own = piece(u, comm.node);
        if (g.share.divides(u.tensor) && own.count)
            copies.push_back({gradients_of(u) + own.first, in_row(u, own), own.count});
    }
    copy(copies);
}

template <class Real>
std::vector<typename GradientExchange<Real>::Unit> GradientExchange<Real>::other_tensors() const {
    std::vector<Unit> units = units_of(embeddings(g.config));
    for (const Unit& u : units_of(biases_and_layernorms(g.config))) units.push_back(u);
    return units;
}

// Between the meeting and layer 0, the gradients sent before it, the same number beside each layer.
template <class Real>
std::vector<typename GradientExchange<Real>::Unit> GradientExchange<Real>::summed_beside(int layer) const {
    const int L = g.config.num_layers, early = first_summed_early();
    const int steps = meeting_layer(), done = meeting_layer() - layer;
    if (layer < 1 || layer > meeting_layer()) return {};
    return weights_of(early + (L - early) * done / steps, early + (L - early) * (done + 1) / steps);
}

// Sends the weight gradients of the layer above, which are not deferred any more. From the meeting on, sums
// gradients: on a launchpad, those that arrived during this layer, while the next ones start.
template <class Real>
void GradientExchange<Real>::run_in_background(int layer) {
    if (!overlaps()) return;
    if (g.pad) g.pad->finish_deferred(layer_weights(g.config, layer).size());
    Copies copies;
    add_sends(copies, weights_of(layer + 1, std::min(layer + 2, g.config.num_layers)));
    if (g.pad) {
        const std::vector<Unit> arrived = summed_beside(layer + 1);
        sum_fetched(arrived);
        add_publications(copies, arrived);
        add_fetches(copies, summed_beside(layer));
    }
    copy(copies);
    if (!g.pad) sum_own_parts(summed_beside(layer));
}

template <class Real>
void GradientExchange<Real>::meet() {
    if (g.pad) g.pad->commit(true);
    comm.node_barrier();
}

// Without access to the rows, the CPU sums this process's part in its row.
template <class Real>
void GradientExchange<Real>::sum_own_parts(const std::vector<Unit>& units) {
    LaunchPad* const pad = on_launchpad ? g.pad : nullptr;
    const bool in_place = !overlaps();
    const ConcurrentGroup group(pad);
    for (const Unit& u : units) {
        const Range own = part(u, comm.local_rank);
        const size_t offset = u.offset + own.first;
        Real* const published = row(comm.local_rank) + offset;
        Real* const gradients = gradients_of(u) + own.first;
        if (in_place) g.memory.download(published, gradients, own.count);
        gradient_sum(pad, GradientSum<Real>{.out = in_place ? published : gradients,
                                            .copy = !in_place && publishes(u) ? published : nullptr,
                                            .inp = rows + offset,
                                            .own = in_place ? published : gradients,
                                            .n = own.count,
                                            .stride = stride,
                                            .count = comm.local_size,
                                            .own_index = comm.local_rank});
        if (in_place) g.memory.upload(gradients, published, own.count);
    }
}

// This process's piece of each unit becomes the sum over all nodes, in the order of nodes.
template <class Real>
void GradientExchange<Real>::sum_between_nodes() {
    const int K = comm.num_nodes;
    std::vector<Message> sends, receives;
    Real* at = incoming.data();
    for (const Unit& u : all_units)
        for (int k = 0; k < K; k++) {
            const Range theirs = piece(u, k), own = piece(u, comm.node);
            const int peer = comm.first_ranks[k] + comm.local_rank;
            if (k != comm.node && theirs.count)
                sends.push_back({peer, in_row(u, theirs), theirs.count * sizeof(Real)});
            if (k != comm.node && own.count) receives.push_back({peer, at, own.count * sizeof(Real)});
            at += own.count;
        }
    comm.exchange(sends, receives);
    at = incoming.data();
    for (const GradientSlice<Real>& own : own_parts) {
        gradient_sum_cpu(GradientSum<Real>{.out = own.data,
                                           .inp = at,
                                           .own = own.data,
                                           .n = own.n,
                                           .stride = own.n,
                                           .count = K,
                                           .own_index = comm.node});
        at += K * own.n;
    }
}

// Completes this process's part in its row: each node sends its piece to all others.
template <class Real>
void GradientExchange<Real>::gather_between_nodes(const std::vector<Unit>& units) {
    std::vector<Message> sends, receives;
    for (const Unit& u : units)
        for (int k = 0; k < comm.num_nodes; k++) {
            const Range theirs = piece(u, k), own = piece(u, comm.node);
            const int peer = comm.first_ranks[k] + comm.local_rank;
            if (k == comm.node) continue;
            if (own.count) sends.push_back({peer, in_row(u, own), own.count * sizeof(Real)});
            if (theirs.count) receives.push_back({peer, in_row(u, theirs), theirs.count * sizeof(Real)});
        }
    comm.exchange(sends, receives);
}

// Of the gradients that this process owns.
template <class Real>
double GradientExchange<Real>::sum_of_squares() {
    float norm[2];
    if (comm.num_nodes > 1) {
        global_norm_cpu<Real>({.norm_and_scale = norm, .gradients = own_parts, .max_norm = 0});
    } else {
        global_norm<Real>(g.on(Layer::global_norm),
                          {.norm_and_scale = g.stats + 1, .gradients = own_parts, .max_norm = 0});
        g.memory.download(norm, g.stats + 1, 2);
    }
    return double(norm[0]) * double(norm[0]);
}

template <class Real>
void GradientExchange<Real>::reduce(float max_norm) {
    const std::vector<Unit> others = other_tensors();
    Copies copies;
    add_sends(copies, weights_of(0, overlaps() ? 1 : g.config.num_layers));
    add_sends(copies, others);
    copy(copies);
    meet();
    sum_own_parts(weights_of(0, first_summed_early()));
    sum_own_parts(others);
    if (comm.num_nodes > 1) {
        if (g.pad) g.pad->commit(true);
        sum_between_nodes();
        std::vector<Unit> whole = all_units;
        std::erase_if(whole, [&](const Unit& u) { return g.share.divides(u.tensor); });
        gather_between_nodes(whole);
    }
    float stats[3];
    double sums[2] = {0, sum_of_squares()};
    g.memory.download(stats, g.stats, 1);
    sums[0] = stats[0];
    comm.all_reduce_sum(sums, 2);  // every process has published its sums
    stats[0] = float(sums[0]);
    finish_global_norm<Real>({.norm_and_scale = stats + 1,
                              .gradients = own_parts,
                              .max_norm = max_norm,
                              .unscale = 1 / g.gradient_scale,
                              .loss = stats},
                             sums[1]);
    g.memory.upload(g.stats, stats, 3);
    if (overlaps()) return;
    receive_gradients(all_units);
    receive_own_pieces();
}

template <class Real>
void GradientExchange<Real>::receive_in_background(int layer) {
    if (overlaps()) receive_gradients(weights_of(layer, std::min(layer + 1, g.config.num_layers)));
}

template <class Real>
void GradientExchange<Real>::receive_early() {
    if (!overlaps()) return;
    std::vector<Unit> early = other_tensors();
    for (const Unit& u : weights_of(0, std::min(2, g.config.num_layers))) early.push_back(u);
    receive_gradients(early);
    finish_copies();
}

template <class Real>
void GradientExchange<Real>::receive_all() {
    if (!overlaps()) return;
    receive_gradients(all_units);
    receive_own_pieces();
    finish_copies();
}

template <class Real>
void GradientExchange<Real>::copy_weights(const std::vector<TensorRange>& published,
                                          const std::vector<TensorRange>& received) {
    Copies copies;
    for (const Unit& u : units_of(published)) {
        const Range own = piece(u, comm.node);
        if (own.count)
            copies.push_back({in_row(u, own), g.params[u.tensor] + u.first + own.first, own.count});
    }
    add_receptions(copies, units_of(received), g.params);
    copy(copies);
}

template <class Real>
void GradientExchange<Real>::exchange_weights() {
    std::vector<TensorRange> all = layer_weights(g.config, 0, g.config.num_layers);
    for (const TensorRange& e : embeddings(g.config)) all.push_back(e);
    copy_weights(all, {});
    if (g.pad) g.pad->commit(true);
    if (comm.num_nodes > 1) gather_between_nodes(units_of(all));
    comm.node_barrier();
    copy_weights({}, all);
    finish_copies();
}

template <class Real>
void GradientExchange<Real>::run_all_kernels() {
    if (!g.pad || !on_launchpad) return;
    sum_own_parts(all_units);
    for (int layer = 1; layer <= meeting_layer(); layer++) sum_fetched(summed_beside(layer));
    global_norm<Real>(g.pad, {.norm_and_scale = g.stats + 1, .gradients = own_parts, .max_norm = 0});
}
