// What a run takes, known before it begins: memory, operations, and the most that the device could do.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "llmc/gpt2.h"

struct MemoryNeed {
    uint64_t bytes = 0;
    uint64_t largest = 0;  // of one allocation
    std::string by_kind;
};

// What a model takes for training on batches (B,T); nothing is allocated.
template <class Real>
MemoryNeed memory_need(const ModelConfig& config, LaunchPad* pad, bool master_weights, int B, int T,
                       Recompute recompute) {
    GPT2<Real> g(config, pad, master_weights, true);
    gpt2_allocate(g, B, T, true, recompute);
    return {g.memory.bytes, g.memory.largest, g.memory.summary()};
}

struct MemoryRoom {
    uint64_t bytes = 0;    // free of the device's memory, or of the host's; 0: not known
    uint64_t largest = 0;  // of one allocation
    std::string where;     // "llvmpipe", "this machine"
    bool holds(const MemoryNeed& need) const {
        return (!bytes || need.bytes <= bytes) && need.largest <= largest;
    }
};
MemoryRoom memory_room(const LaunchPad* pad);

// The largest batch of sequences of T tokens whose need the room holds; 0: not even 1.
int largest_batch(const std::function<MemoryNeed(int B)>& need, const MemoryRoom& room, int T);

// Error that says what to change, unless the room holds a batch of B sequences of T tokens. total_batch: -d,
// or -1.
void check_memory(const std::function<MemoryNeed(int B)>& need, const MemoryRoom& room, int B, int T,
                  int total_batch);

// Operations of forward and backward pass for one token, counted as llm.c does: 6 for each parameter, and 6 L
// C T of attention.
double flops_per_token(const ModelConfig& config, int T);

// The operations a second that the device reaches at most on numbers of this type, measured on it: matrix
// cores for 16-bit types where it has them, multiply-adds else. Takes a second. 0 where it cannot be
// measured.
template <class Real>
double peak_rate(LaunchPad* pad);
