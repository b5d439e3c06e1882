// What the communicator needs from MPI, so that no MPI call stands outside mpi_communicator.cpp. Operations
// only begin here; the communicator polls them with done(), so that it can look after dead ranks meanwhile.
#pragma once
#include <memory>
#include <vector>

#include "llmc/distributed/communicator.h"

// What is sent to a rank, or received from it, at a time: the pieces one after another. Both sides may cut
// them differently.
struct Packet {
    int rank;
    struct Piece {
        void* data;
        size_t bytes;
    };
    std::vector<Piece> pieces;
    size_t bytes = 0;
};

struct Transport {
    int rank = 0, size = 1;
    bool threads = false;             // any thread may call the functions, one at a time
    std::vector<int> machines = {0};  // by rank; ascending from 0, so the ranks of a machine are consecutive

    // Buffers must stay alive until done() returns true. Packets have less than 2 GiB.
    std::shared_ptr<Requests> (*begin_broadcast)(void* data, size_t bytes, int root) = nullptr;
    std::shared_ptr<Requests> (*begin_all_gather)(const void* mine, size_t bytes, void* all) = nullptr;
    std::shared_ptr<Requests> (*begin_exchange)(const std::vector<Packet>& sends,
                                                const std::vector<Packet>& receives) = nullptr;
    bool (*done)(Requests& requests) = nullptr;
    // Collective: the ranks that stay become the job, in their order, with this rank and size. The others
    // begin_end(), which is done when the job has left.
    void (*keep)(bool stays, int& rank, int& size) = nullptr;
    std::shared_ptr<Requests> (*begin_end)() = nullptr;
    void (*leave)() = nullptr;  // the job, together with all ranks
    void (*abort)() = nullptr;  // ends all ranks with status 1
};

// Joins the launcher's MPI job. In a build without MPI, throws Error. `expected` is the number of processes
// according to the launcher, or 0 if it does not say; only messages need it.
Transport join_mpi(int expected);
