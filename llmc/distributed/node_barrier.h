// A barrier among the processes of a node, in memory that they share, and whether they are alive.
#pragma once
#include "llmc/distributed/shared_memory.h"

struct NodeState;

struct NodeBarrier {
    static size_t bytes();  // of shared memory, zeroed, that it needs

    // Other processes may call the functions below once all of them have constructed it. The memory's file
    // stays open: each process holds a lock on it, which the system releases when the process ends.
    NodeBarrier(SharedMemory memory, int local_rank, int local_size);

    // Waits until all processes of the node have called it. Returns -1, or the local rank of a process that
    // has died and so will never come.
    int wait();

    int find_dead() const;  // local rank of a process that has died, or -1
    bool claim_abort();     // true in the first process of the node that calls it

   private:
    SharedMemory memory;
    NodeState& state;
    int local_rank, local_size;
};

// Polling: spins for 5 us, yields for 5 ms, then sleeps between polls. pause() returns true every 50 ms, when
// it is time to look after dead processes.
struct Polling {
    bool pause();

   private:
    double begin = 0, checked = 0;
};
