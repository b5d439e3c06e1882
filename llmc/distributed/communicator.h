// The processes of a job, and what they exchange. mpirun or srun starts the same program several times; each
// process is a rank. Ranks on one machine form a node: they share memory. Nodes exchange messages in host
// memory. A program that was started without them is a job of one rank, for which all functions work too.
//
// Every rank calls the same collective functions in the same order, from the thread that called join_job().
// A rank that fails or dies ends the whole job within seconds, and one that hangs after a timeout: see
// abort_job() and watch.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "llmc/distributed/shared_memory.h"

// A message to or from a rank. A send only reads the data. Both sides state the same number of bytes; it may
// be 0, and data null then. Messages between two ranks arrive in the order in which they are listed.
struct Message {
    int rank;
    void* data;
    size_t bytes;
};

struct Requests;  // of a transport
struct Exchange;  // messages that are under way

struct Communicator {
    int rank = 0, size = 1;  // in the job
    // After form_nodes():
    int local_rank = 0, local_size = 1;      // in the node
    int machine_rank = 0, machine_size = 1;  // in the machine, which may have several nodes
    int node = 0, num_nodes = 1;
    // Node n holds the ranks first_ranks[n] ... first_ranks[n + 1] - 1.
    std::vector<int> first_ranks = {0, 1};
    // What one rank sends another in an exchange is one message, in parts if it is longer than this. It must
    // be the same on every rank.
    size_t max_part = size_t(1) << 30;
    double waited = 0;  // seconds in which this rank waited for others, in all functions below

    // Normally leaves the job after all other ranks have done so, too. While an exception is in flight,
    // leaves the job to abort_job(), or to the launcher, which ends a job whose process exits early.
    ~Communicator();

    // Collective; call it once, before any function that concerns nodes. A node has all ranks of a machine.
    // With ranks_per_node > 0, it has that many consecutive ranks of a machine, so one machine can act as
    // several. Rank 0's number holds for all.
    void form_nodes(int ranks_per_node = 0);

    // Collective: the ranks with members[rank] become the job, numbered anew, in a job of one node. In the
    // others, waits until that job has ended, and returns false.
    bool keep(const std::vector<bool>& members);

    // How long the ranks wait for one that makes no progress before the job ends (20 minutes unless it is
    // set), and where it can be resumed, for the line of a job that ends since a rank has died or hangs. Not
    // collective.
    void set_ending(double timeout_seconds, const std::string& advice);

    // Collective functions. A rank's results are bit-identical to every other rank's.
    void broadcast(void* data, size_t bytes, int root);
    void all_reduce_sum(double* values, int count);  // adds in the order of ranks
    void all_reduce_max(int64_t* values, int count);
    std::vector<std::string> gather(const std::string& text);  // all ranks' texts, by rank
    std::vector<double> gather(double number);

    // Runs the action in every rank. If it throws in some, throws Error with the first one's message in all
    // of them, which abort_job() prints once, with that rank. An error that concerns a single rank thus
    // cannot leave the others waiting. In a job of one process, exceptions pass as they are.
    void agree(const std::function<void()>& action);

    // Memory that the ranks of a node share: zeroed, at another address in each process, aligned to 64 KiB
    // and a multiple of it long, so that any Vulkan device can import it. Collective among all ranks of the
    // job. If a node has no space, every rank throws the same Error, which names `what`. Lives as long as
    // the communicator, or until free_shared(), which concerns this rank alone.
    void* allocate_shared(size_t bytes, const char* what);
    void free_shared(const void* address);

    // Waits for the other ranks of this node; orders their accesses to shared memory. Takes microseconds.
    void node_barrier();

    // Sends and receives messages and waits for all of them. Error in a job of one process.
    void exchange(const std::vector<Message>& sends, const std::vector<Message>& receives);
    // The same in two halves: begins, after the exchanges that were begun before, while the caller computes.
    // The data must stay until finish(). All ranks begin exchanges in the same order.
    std::shared_ptr<Exchange> begin_exchange(const std::vector<Message>& sends,
                                             const std::vector<Message>& receives);
    void finish(const std::shared_ptr<Exchange>& exchange);

   private:
    std::list<SharedMemory> regions;
    const int exceptions = std::uncaught_exceptions();  // in flight when it was constructed

    Communicator() = default;
    friend std::unique_ptr<Communicator> join_job();
    void watch_ranks();
    void open_node_barrier();
    void wait(Requests& requests);
    void all_gather(const void* mine, size_t bytes, void* all);
    SharedMemory map_shared(size_t bytes, const std::string& purpose);
};

// Joins the job of the launcher that started this process: mpirun or mpiexec of Open MPI or MPICH, or srun.
// Ranks are numbered machine by machine. Call it once, at the start. Error if the program was built without
// MPI, or with another MPI than the launcher's, and was started as one of several processes.
std::unique_ptr<Communicator> join_job();

// Prints the message as one line, preceded by the rank ("rank 3: ..."), ends all processes of the job, and
// exits with status 1. A program calls it for each error after join_job(), also after its communicator is
// gone.
[[noreturn]] void abort_job(const std::string& message);

bool built_with_mpi();
bool has_launcher();  // mpirun, mpiexec or srun started this process, maybe as the only one

// The messages as one packet for each rank, or several of at most max_part bytes. The packet for the rank
// after `first` comes first, so that not all ranks begin with the same one.
struct Packet;
std::vector<Packet> packets_of(const std::vector<Message>& messages, size_t max_part, int size, int first,
                               bool ascending);

// The first rank of each node, then the number of ranks, if rank r runs on machines[r]. See form_nodes().
std::vector<int> first_ranks_of_nodes(const std::vector<int>& machines, int ranks_per_node);
