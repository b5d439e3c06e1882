// A barrier among the processes of a node, in memory that they share. It waits for ever for a process that
// has died: watch.h ends the others.
#pragma once
#include "llmc/distributed/shared_memory.h"

struct NodeState;

struct NodeBarrier {
    static size_t bytes();  // of shared memory, zeroed, that it needs

    // Other processes may call the functions below once all of them have constructed it.
    NodeBarrier(SharedMemory memory, int local_size);

    void wait();         // until all processes of the node have called it
    bool claim_abort();  // true in the first process of the node that calls it

   private:
    SharedMemory memory;
    NodeState& state;
    int local_size;
};

// Polling: spins for 5 us, yields for 5 ms, then sleeps between polls.
struct Polling {
    void pause();

   private:
    double begin = 0;
};
