// Data parallelism: the gradients of all processes of a job, summed into each of them over shared host
// memory.
//
// Each process of a node has a row of shared memory of the size of its gradients, and owns a part of all
// rows. An exchange has three phases, with a barrier between them: each process writes the parts that others
// own into its row; sums its own part over all rows, in the order of ranks, and publishes the sum in its row;
// and reads the other parts' sums. Every process ends with identical gradients, and the same number of
// processes gives bit-identical runs.
#pragma once
#include <algorithm>
#include <vector>

#include "llmc/distributed/communicator.h"
#include "llmc/layers/gradient_sum.h"
#include "llmc/model/gpt2.h"

template <class Real>
struct GradientExchange {
    // Allocates the shared memory, which the model's launchpad imports if it can. All processes call it.
    // Error if the job has several nodes, or if there is not enough shared memory.
    GradientExchange(GPT2<Real>& model, Communicator& job);
    GradientExchange(const GradientExchange&) = delete;
    ~GradientExchange();

    // Replaces the gradients by the sum over all processes, and the loss, g.stats[0], likewise. Waits for the
    // GPU.
    void run();

   private:
    // Some elements of a gradient slice: where they are, and their offset in a row.
    struct Range {
        Real* data;
        size_t offset, n;
    };
    std::vector<Range> ranges_of(int rank) const;
    Real* row(int rank) const { return rows + rank * stride; }
    void to_row(const Range& r);
    void from_row(const Range& r, int rank);
    void sum_own_part();
    void sum_losses();
    void wait() {
        if (g.pad) g.pad->commit(true);
    }

    GPT2<Real>& g;
    Communicator& comm;
    size_t stride = 0;          // elements of a row: all gradient slices, one after the other
    Real* rows = nullptr;       // (local_size, stride), shared
    bool on_launchpad = false;  // the launchpad reads and writes the rows
};

template <class Real>
GradientExchange<Real>::GradientExchange(GPT2<Real>& model, Communicator& job) : g(model), comm(job) {
    if (comm.num_nodes > 1)
        fail("a run of %d processes on %d machines: only processes of one machine can train together",
             comm.size, comm.num_nodes);
    for (const auto& slice : g.gradient_slices) stride += slice.n;
    stride = ceil_div(stride, 4096) * 4096;  // whole pages
    rows = static_cast<Real*>(comm.allocate_shared(stride * comm.local_size * sizeof(Real), "gradients"));
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

// The part that a process owns: a range of the row, in the slices that it overlaps. Parts begin at multiples
// of 64 elements, so that accesses stay aligned.
template <class Real>
std::vector<typename GradientExchange<Real>::Range> GradientExchange<Real>::ranges_of(int rank) const {
    const size_t part = ceil_div(stride, 64 * size_t(comm.local_size)) * 64;
    const size_t first = std::min(stride, rank * part), end = std::min(stride, first + part);
    std::vector<Range> ranges;
    size_t start = 0;  // of the slice
    for (const auto& slice : g.gradient_slices) {
        const size_t from = std::max(first, start), to = std::min(end, start + slice.n);
        if (from < to) ranges.push_back({slice.data + (from - start), from, to - from});
        start += slice.n;
    }
    return ranges;
}

template <class Real>
void GradientExchange<Real>::to_row(const Range& r) {
    Real* to = row(comm.local_rank) + r.offset;
    if (g.pad && on_launchpad)
        g.pad->copy(to, r.data, r.n * sizeof(Real));
    else
        g.memory.download(to, r.data, r.n);
}

template <class Real>
void GradientExchange<Real>::from_row(const Range& r, int rank) {
    const Real* from = row(rank) + r.offset;
    if (g.pad && on_launchpad)
        g.pad->copy(r.data, from, r.n * sizeof(Real));
    else
        g.memory.upload(r.data, from, r.n);
}

// Sums this process's part over all rows, into its gradients and its row.
template <class Real>
void GradientExchange<Real>::sum_own_part() {
    for (const Range& r : ranges_of(comm.local_rank)) {
        GradientSum<Real> p = {.out = r.data,
                               .inp = rows + r.offset,
                               .own = r.data,
                               .n = r.n,
                               .stride = stride,
                               .count = comm.local_size,
                               .own_index = comm.local_rank};
        if (g.pad && !on_launchpad) {
            to_row(r);
            p.out = row(comm.local_rank) + r.offset;
            p.own = p.out;
            gradient_sum_cpu(p);
            from_row(r, comm.local_rank);
            continue;
        }
        gradient_sum(g.pad, p);
        to_row(r);
    }
}

template <class Real>
void GradientExchange<Real>::sum_losses() {
    float loss;
    g.memory.download(&loss, g.stats, 1);
    double sum = loss;
    comm.all_reduce_sum(&sum, 1);
    loss = float(sum);
    g.memory.upload(g.stats, &loss, 1);
}

template <class Real>
void GradientExchange<Real>::run() {
    sum_losses();  // every process has finished its backward pass, and read the rows of the step before
    for (int rank = 0; rank < comm.local_size; rank++)
        if (rank != comm.local_rank)
            for (const Range& r : ranges_of(rank)) to_row(r);
    wait();
    comm.node_barrier();
    sum_own_part();
    wait();
    comm.node_barrier();
    for (int rank = 0; rank < comm.local_size; rank++)
        if (rank != comm.local_rank)
            for (const Range& r : ranges_of(rank)) from_row(r, rank);
    wait();
}
