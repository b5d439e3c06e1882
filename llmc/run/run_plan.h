// What a run takes, known before it starts: memory and operations, and the peak rate of the device.
#pragma once
#include <cstdint>
#include <string>

#include "llmc/model/gradient_exchange.h"
#include "llmc/run/evaluate.h"

struct Options;
struct RunInputs;

struct MemoryNeed {
    uint64_t bytes = 0;
    uint64_t largest = 0;  // single allocation
    std::string by_kind;   // such as "2048.0 MiB: parameters 237.4, ..."
    // Of the host's memory, in each process of a machine, if the device has its own
    uint64_t host_bytes = 0;
};

// What decides the memory of a run besides its model: batches of (B,T).
struct TrainingShape {
    bool master_weights;
    int B, T;
    Recompute recompute;
    float dropout = 0;
    OptimizerShare share = {};
    Communicator* job = nullptr;  // null: a single process
    int sample_tokens = 0;        // of the samples that this process draws; 0: none
    bool offload = false;         // of the optimizer's state
    bool on_device = false;       // as if on a GPU with memory of its own
};

// The most that training takes at a time, by dry runs of its commands; nothing is allocated. Measuring the
// device's peak, before anything is allocated, takes less or is left out.
template <class Real>
MemoryNeed memory_need(const ModelConfig& config, LaunchPad* pad, const TrainingShape& shape) {
    GPT2<Real> g(config, pad, MemoryUse::count);
    g.memory.own_memory |= shape.on_device;
    g.dropout = shape.dropout;
    gpt2_allocate(g, shape.B, shape.T, true, shape.recompute);
    const Optimizer<Real> optimizer(
        config, g.memory, {.master_weights = shape.master_weights, .offload = shape.offload}, shape.share);
    if (pad)
        g.memory.count("scratch",
                       pad->dry_run([&] { optimizer.update(pad, g.tensors()); }).scratch[int(Scratch::muon)]);
    if (!pad && !shape.on_device) g.memory.count("scratch", optimizer.workspace_bytes());
    if (shape.job && shape.job->size > 1)
        const GradientExchange<Real> exchange(g, optimizer.ownership, *shape.job);
    if (shape.sample_tokens) {
        TextGenerator<Real> samples(g, sample_capacity(config.max_seq_len, shape.sample_tokens), 1);
        samples.foresee(1);
        g.memory.count("samples", samples.memory_bytes());
    }
    return {g.memory.bytes, g.memory.largest, g.memory.summary(), g.memory.host_bytes};
}

struct MemoryRoom {
    uint64_t bytes = 0;                  // free memory of the device, or of the host
    uint64_t largest = 0;                // possible single allocation
    std::string where;                   // "llvmpipe", "this machine"
    int processes = 1;                   // that divide `bytes` among them
    uint64_t host_bytes = ~uint64_t(0);  // free memory of the host for each process, besides a GPU's own
    bool host_holds(const MemoryNeed& need) const { return need.host_bytes <= host_bytes; }
    bool holds(const MemoryNeed& need) const {
        return need.bytes <= bytes / uint64_t(processes) && need.largest <= largest && host_holds(need);
    }
};
// Of a launchpad's device, or of the host, less what the driver needs. processes: that use this device.
// limit: bytes of the host's memory, for the CPU; a launchpad has its own limit, for one process. 0: none.
MemoryRoom memory_room(const LaunchPad* pad, int processes = 1, uint64_t limit = 0);
// Bytes of the host's memory that each of so many processes of a machine may use, besides a GPU's own: the
// driver may grant less than there is.
uint64_t host_room(const LaunchPad* pad, int processes);
// Of a GPU with so much memory of its own, which need not be there.
MemoryRoom room_of_device(uint64_t bytes);

// The shortest names that tell the sources of a mixture apart.
std::vector<std::string> source_names(const Options& o);

// Prints the model, the data, the batch and the memory.
void print_plan(const Options& o, const RunInputs& inputs, const MemoryNeed& need);

// Operations of forward and backward pass per token, counted as llm.c does: 6 per parameter, and 6 L C T for
// attention.
double flops_per_token(const ModelConfig& config, int T);

// The peak rate of a GPU for operands of this type, measured on it: of its cooperative matrices for 16-bit
// types if it has them, otherwise of fp32 multiply-adds. In operations per second; 0 if it cannot be
// measured, and for the CPU. Takes about a second.
template <class Real>
double peak_rate(LaunchPad* pad);
