// What a run takes, known before it starts: memory and operations, and the peak rate of the device.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "llmc/model/gpt2.h"

struct Options;
struct RunInputs;

struct MemoryNeed {
    uint64_t bytes = 0;
    uint64_t largest = 0;  // single allocation
    std::string by_kind;   // such as "2048.0 MiB: parameters 237.4, ..."
    // Of the host's memory, in each process of a machine, if the device has its own
    uint64_t host_bytes = 0;
};

// What decides the memory of a run beside its model: batches of (B,T).
struct TrainingShape {
    bool master_weights;
    int B, T;
    Recompute recompute;
    float dropout = 0;
    OptimizerShare share = {};
    bool offload = false;  // of the optimizer's state
};

// What training takes; nothing is allocated.
template <class Real>
MemoryNeed memory_need(const ModelConfig& config, LaunchPad* pad, const TrainingShape& shape) {
    GPT2<Real> g(config, pad, MemoryUse::count);
    g.dropout = shape.dropout;
    gpt2_allocate(g, shape.B, shape.T, true, shape.recompute);
    const Optimizer<Real> optimizer(
        config, g.memory, {.master_weights = shape.master_weights, .offload = shape.offload}, shape.share);
    if (pad && shape.share.kind == OptimizerKind::muon)
        g.memory.count("scratch",
                       pad->dry_run([&] { optimizer.update(pad, g.tensors()); }).scratch[int(Scratch::muon)]);
    return {g.memory.bytes, g.memory.largest, g.memory.summary(), g.memory.host_bytes};
}

struct MemoryRoom {
    uint64_t bytes = 0;    // free memory of the device, or of the host; 0: unknown
    uint64_t largest = 0;  // possible single allocation
    std::string where;     // "llvmpipe", "this machine"
    uint64_t host_bytes = ~uint64_t(0);  // free memory of the host for each process, beside a device
    bool host_holds(const MemoryNeed& need) const { return need.host_bytes <= host_bytes; }
    bool holds(const MemoryNeed& need) const {
        return (!bytes || need.bytes <= bytes) && need.largest <= largest && host_holds(need);
    }
};
// processes: of the job on this machine; they share the host's memory, and have a device each.
MemoryRoom memory_room(const LaunchPad* pad, int processes = 1);

// The largest batch of sequences of T tokens that fits; 0: not even 1.
int largest_batch(const std::function<MemoryNeed(int B)>& need, const MemoryRoom& room, int T);

// Prints the free memory and the largest batch that fits.
void print_room(const std::function<MemoryNeed(int B)>& need, const MemoryRoom& room, int T);

// Throws Error, which says what to change, if a batch of B sequences of T tokens does not fit. total_batch:
// -d, or -1.
void check_memory(const std::function<MemoryNeed(int B)>& need, const MemoryRoom& room, int B, int T,
                  int total_batch);

// Prints the model, the data, the batch and the memory.
void print_plan(const Options& o, const RunInputs& inputs, const MemoryNeed& need);

// Operations of forward and backward pass per token, counted as llm.c does: 6 per parameter, and 6 L C T for
// attention.
double flops_per_token(const ModelConfig& config, int T);

// The peak rate of the device for operands of this type, measured on it: of its cooperative matrices for
// 16-bit types if it has them, otherwise of fp32 multiply-adds. In operations per second; 0 if it cannot be
// measured. Takes about a second.
template <class Real>
double peak_rate(LaunchPad* pad);
