// What the communicator needs from MPI, so that no MPI call stands outside mpi_communicator.cpp. Operations
// only begin here; the communicator polls them with done(), so that it can look after dead ranks meanwhile.
#pragma once
#include <memory>
#include <vector>

#include "llmc/distributed/communicator.h"

struct Transport {
    int rank = 0, size = 1;
    std::vector<int> machines = {0};  // by rank; ascending from 0, so the ranks of a machine are consecutive

    // Buffers must stay alive until done() returns true. Messages have less than 2 GiB.
    std::shared_ptr<Requests> (*begin_broadcast)(void* data, size_t bytes, int root) = nullptr;
    std::shared_ptr<Requests> (*begin_all_gather)(const void* mine, size_t bytes, void* all) = nullptr;
    std::shared_ptr<Requests> (*begin_exchange)(const std::vector<Message>& sends,
                                                const std::vector<Message>& receives) = nullptr;
    bool (*done)(Requests& requests) = nullptr;
    void (*leave)() = nullptr;  // the job, together with all ranks
    void (*abort)() = nullptr;  // ends all ranks with status 1
};

// Joins the launcher's MPI job. In a build without MPI, throws Error. `expected` is the number of processes
// according to the launcher, or 0 if it does not say; only messages need it.
Transport join_mpi(int expected);
