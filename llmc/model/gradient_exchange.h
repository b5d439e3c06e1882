// Data parallelism: the gradients of all processes of a job, summed into each of them over shared host
// memory.
//
// Each process of a node has a row of shared memory of the size of its gradients. Of every tensor (of a
// linear layer's weights: of every layer), it owns one part. A step has three phases:
//   1. During the last backward pass, each process copies the parts that others own to its row, layer by
//      layer (send).
//   2. It sums the parts that it owns over all rows, in the order of ranks, and publishes the sums in its
//   row.
//      The processes meet twice: the layers whose gradients are there when two thirds of the backward pass
//      are done are summed during the rest of it, all others after it. The norm follows from all owners' sums
//      of squares.
//   3. During the next forward pass, it copies the others' sums to its gradients, before the update that
//      needs them (receive).
// Every process ends with identical gradients, and the same number of processes gives bit-identical runs. A
// process overwrites its sums only after a barrier in the next backward pass: all others have read them then.
#pragma once
#include <algorithm>
#include <vector>

#include "llmc/distributed/communicator.h"
#include "llmc/layers/gradient_sum.h"
#include "llmc/model/gpt2_update.h"

template <class Real>
struct GradientExchange {
    // Allocates the shared memory, which the model's launchpad imports if it can. All processes call it.
    // Error if the job has several nodes, or if there is not enough shared memory.
    GradientExchange(GPT2<Real>& model, Communicator& job);
    GradientExchange(const GradientExchange&) = delete;
    ~GradientExchange();

    int num_processes() const { return comm.size; }

    // After the backward pass of a layer: queues what may run beside the layers below it. Before that, the
    // processes meet at the end of one layer; -1: the model has too few.
    void run_in_background(int layer);
    int meeting_layer() const { return g.config.num_layers < 3 ? -1 : (g.config.num_layers - 1) / 3; }
    void meet();  // waits for the GPU, then for the other processes
    // After the backward pass: does the rest of phases 1 and 2. g.stats[0] becomes the sum of the losses, [1]
    // and [2] the norm and the clip factor, as gpt2_gradient_norm() computes them.
    void reduce(float max_norm);
    // Phase 3: see GradientArrival.
    void receive_in_background(int layer);
    void receive_early();
    void receive_all();

    // The kernels of all phases, for LaunchPad::dry_run().
    void run_all_kernels();

   private:
    // Elements of a tensor that lie in one piece and are divided among the processes. In the background, each
    // unit runs beside another command.
    struct Unit {
        Real* data;
        size_t offset, n;  // in a row
    };
    struct Range {
        size_t first, n;
    };
    std::vector<Unit> units_of(const std::vector<Elements>& all) const;
    std::vector<Elements> small_tensors() const;
    Range part_of(const Unit& u, int rank) const;
    void copy(Real* to, const Real* from, size_t n, bool in_background);
    void send(const std::vector<Unit>& units, bool in_background);
    void receive(const std::vector<Unit>& units, bool in_background);
    void sum_own_parts(const std::vector<Unit>& units, bool in_background);
    std::vector<Unit> weights_of(int first_layer, int end_layer) const;
    // The layers from here on are summed during the backward pass.
    int first_summed_early() const {
        return overlaps() && meeting_layer() >= 0 ? meeting_layer() + 2 : g.config.num_layers;
    }
    // A GPU that cannot import host memory sends and receives everything in reduce().
    bool overlaps() const { return !g.pad || on_launchpad; }
    Real* row(int rank) const { return rows + rank * stride; }
    bool in_rows(const Real* p) const { return p >= rows && p < rows + comm.local_size * stride; }

    GPT2<Real>& g;
    Communicator& comm;
    size_t offsets[NUM_PARAMETER_TENSORS];  // of the tensors in a row
    size_t stride = 0;                      // elements of a row
    Real* rows = nullptr;                   // (local_size, stride), shared
    bool on_launchpad = false;              // the launchpad reads and writes the rows
    std::vector<Unit> all_units;
    std::vector<GradientSlice<Real>> own_parts;  // of the gradients, to compute the norm
};

template <class Real>
GradientExchange<Real>::GradientExchange(GPT2<Real>& model, Communicator& job) : g(model), comm(job) {
    if (comm.num_nodes > 1)
        fail("a run of %d processes on %d machines: only processes of one machine can train together",
             comm.size, comm.num_nodes);
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) {
        offsets[i] = stride;
        stride += ceil_div(parameter_size(g.config, i), 64) * 64;
    }
    stride = ceil_div(stride, 4096) * 4096;  // whole pages
    rows = static_cast<Real*>(comm.allocate_shared(stride * comm.local_size * sizeof(Real), "gradients"));
    std::vector<Elements> all = small_tensors();
    for (int l = 0; l < g.config.num_layers; l++)
        for (const Elements& e : layer_weights(g.config, l)) all.push_back(e);
    all_units = units_of(all);
    for (const Unit& u : all_units) {
        const Range own = part_of(u, comm.local_rank);
        if (own.n) own_parts.push_back({u.data + own.first, own.n});
    }
    if (!g.pad) return;
    try {
        g.pad->register_buffer(rows, stride * comm.local_size * sizeof(Real));
        on_launchpad = true;
    } catch (const Error&) {
        // a device that cannot import host memory: gradients are downloaded, summed by the CPU, and uploaded
    }
}

template <class Real>
GradientExchange<Real>::~GradientExchange() {
    if (on_launchpad) g.pad->unregister_buffer(rows);
}

// Everything but the weights of the layers' linear layers.
template <class Real>
std::vector<Elements> GradientExchange<Real>::small_tensors() const {
    std::vector<Elements> all;
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++)
        if (i == WTE || !is_overwritten(i)) all.push_back({i, 0, parameter_size(g.config, i)});
    return all;
}

template <class Real>
std::vector<typename GradientExchange<Real>::Unit> GradientExchange<Real>::units_of(
    const std::vector<Elements>& all) const {
    std::vector<Unit> units;
    for (const Elements& e : all)
        units.push_back({g.grads[e.tensor] + e.first, offsets[e.tensor] + e.first, e.count});
    return units;
}

// Parts begin at multiples of 64 elements, so that accesses stay aligned.
template <class Real>
typename GradientExchange<Real>::Range GradientExchange<Real>::part_of(const Unit& u, int rank) const {
    const size_t part = ceil_div(u.n, 64 * size_t(comm.local_size)) * 64;
    const size_t first = std::min(u.n, rank * part);
    return {first, std::min(u.n, first + part) - first};
}

// Between gradients and rows.
template <class Real>
void GradientExchange<Real>::copy(Real* to, const Real* from, size_t n, bool in_background) {
    if (!overlaps()) return in_rows(to) ? g.memory.download(to, from, n) : g.memory.upload(to, from, n);
    gradient_sum(g.pad, GradientSum<Real>{.out = to,
                                          .inp = from,
                                          .own = nullptr,
                                          .n = n,
                                          .stride = 0,
                                          .count = 1,
                                          .own_index = -1,
                                          .in_background = in_background});
}

template <class Real>
void GradientExchange<Real>::send(const std::vector<Unit>& units, bool in_background) {
    const ConcurrentGroup group(in_background ? nullptr : g.pad);
    for (const Unit& u : units) {
        const ConcurrentGroup unit_group(g.pad);
        const Range own = part_of(u, comm.local_rank);
        const size_t after = own.first + own.n;
        Real* const to = row(comm.local_rank) + u.offset;
        if (own.first) copy(to, u.data, own.first, in_background);
        if (after < u.n) copy(to + after, u.data + after, u.n - after, in_background);
    }
}

template <class Real>
void GradientExchange<Real>::receive(const std::vector<Unit>& units, bool in_background) {
    const ConcurrentGroup group(in_background ? nullptr : g.pad);
    for (const Unit& u : units) {
        const ConcurrentGroup unit_group(g.pad);
        for (int rank = 0; rank < comm.local_size; rank++) {
            const Range part = part_of(u, rank);
            if (rank != comm.local_rank && part.n)
                copy(u.data + part.first, row(rank) + u.offset + part.first, part.n, in_background);
        }
    }
}

template <class Real>
std::vector<typename GradientExchange<Real>::Unit> GradientExchange<Real>::weights_of(int first_layer,
                                                                                      int end_layer) const {
    std::vector<Elements> all;
    for (int l = first_layer; l < end_layer; l++)
        for (const Elements& e : layer_weights(g.config, l)) all.push_back(e);
    return units_of(all);
}

// Sends the weight gradients of the layer above, which are not deferred any more. From the meeting on, sums
// those that were sent before it, the same number beside each layer.
template <class Real>
void GradientExchange<Real>::run_in_background(int layer) {
    if (!overlaps()) return;
    const int L = g.config.num_layers, early = first_summed_early();
    const std::vector<Unit> sent = weights_of(layer + 1, std::min(layer + 2, L));
    std::vector<Unit> summed;
    if (layer <= meeting_layer()) {
        const int steps = meeting_layer() + 1, done = meeting_layer() - layer;
        summed = weights_of(early + (L - early) * done / steps, early + (L - early) * (done + 1) / steps);
    }
    if (g.pad) g.pad->finish_deferred(layer_weights(g.config, layer).size());
    if (g.pad) g.pad->begin_background();
    send(sent, true);
    sum_own_parts(summed, true);
    if (g.pad) g.pad->end_background();
}

template <class Real>
void GradientExchange<Real>::meet() {
    if (g.pad) g.pad->commit(true);
    comm.node_barrier();
}

// Without access to the rows, the CPU sums this process's part in its row.
template <class Real>
void GradientExchange<Real>::sum_own_parts(const std::vector<Unit>& units, bool in_background) {
    LaunchPad* const pad = on_launchpad ? g.pad : nullptr;
    const bool in_place = !overlaps();
    const ConcurrentGroup group(in_background ? nullptr : pad);
    for (const Unit& u : units) {
        const Range part = part_of(u, comm.local_rank);
        const size_t offset = u.offset + part.first;
        Real* const published = row(comm.local_rank) + offset;
        Real* const gradients = u.data + part.first;
        if (in_place) g.memory.download(published, gradients, part.n);
        gradient_sum(pad, GradientSum<Real>{.out = in_place ? published : gradients,
                                            .copy = in_place ? nullptr : published,
                                            .inp = rows + offset,
                                            .own = in_place ? published : gradients,
                                            .n = part.n,
                                            .stride = stride,
                                            .count = comm.local_size,
                                            .own_index = comm.local_rank,
                                            .in_background = in_background});
        if (in_place) g.memory.upload(gradients, published, part.n);
    }
}

template <class Real>
void GradientExchange<Real>::reduce(float max_norm) {
    const std::vector<Unit> small = units_of(small_tensors());
    send(weights_of(0, overlaps() ? 1 : g.config.num_layers), false);
    send(small, false);
    meet();
    sum_own_parts(weights_of(0, first_summed_early()), false);
    sum_own_parts(small, false);
    // the norm of the parts that this process owns; the loss stays where it is
    global_norm<Real>(g.on(Layer::global_norm),
                      {.norm_and_scale = g.stats + 1, .gradients = own_parts, .max_norm = 0});
    float stats[3];
    g.memory.download(stats, g.stats, 3);
    double sums[2] = {stats[0], double(stats[1]) * double(stats[1])};
    comm.all_reduce_sum(sums, 2);  // every process has published its sums
    stats[0] = float(sums[0]);
    finish_global_norm<Real>({.norm_and_scale = stats + 1,
                              .gradients = own_parts,
                              .max_norm = max_norm,
                              .unscale = 1 / g.gradient_scale,
                              .loss = stats},
                             sums[1]);
    g.memory.upload(g.stats, stats, 3);
    if (!overlaps()) receive(all_units, false);
}

template <class Real>
void GradientExchange<Real>::receive_in_background(int layer) {
    if (overlaps()) receive(weights_of(layer, layer + 1), true);
}

template <class Real>
void GradientExchange<Real>::receive_early() {
    if (!overlaps()) return;
    receive(units_of(small_tensors()), false);
    receive(weights_of(0, std::min(2, g.config.num_layers)), false);
}

template <class Real>
void GradientExchange<Real>::receive_all() {
    if (overlaps()) receive(all_units, false);
}

template <class Real>
void GradientExchange<Real>::run_all_kernels() {
    if (!g.pad || !on_launchpad) return;
    send(all_units, true);
    send(all_units, false);
    sum_own_parts(all_units, false);
    sum_own_parts(all_units, true);
    receive(all_units, true);
    receive(all_units, false);
    global_norm<Real>(g.pad, {.norm_and_scale = g.stats + 1, .gradients = own_parts, .max_norm = 0});
}
