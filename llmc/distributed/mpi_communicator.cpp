// All calls of MPI: see transport.h. CMake compiles this file only if it finds MPI.
#define OMPI_SKIP_MPICXX 1  // only the C interface
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>

#include "llmc/base/error.h"
#include "llmc/base/os.h"
#include "llmc/distributed/transport.h"

struct Requests {
    std::vector<MPI_Request> all;
    std::vector<int> expected;  // bytes that each request receives; -1: it receives no message
};

static MPI_Comm ranks = MPI_COMM_NULL;      // the job, numbered machine by machine
static MPI_Comm all_ranks = MPI_COMM_NULL;  // until its end, with those that were left out, if any were

static void check(int error, const char* what) {
    if (error == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(error, text, &length);
    std::string line(text, size_t(length));
    std::replace(line.begin(), line.end(), '\n', ' ');
    fail("%s: %s", what, line.c_str());
}
#define MPI_CHECK(call) check(call, #call)

static std::shared_ptr<Requests> one_request() {
    return std::make_shared<Requests>(Requests{{MPI_REQUEST_NULL}, {-1}});
}

static std::shared_ptr<Requests> begin_broadcast(void* data, size_t bytes, int root) {
    auto requests = one_request();
    MPI_CHECK(MPI_Ibcast(data, int(bytes), MPI_BYTE, root, ranks, &requests->all[0]));
    return requests;
}

static std::shared_ptr<Requests> begin_all_gather(const void* mine, size_t bytes, void* all) {
    auto requests = one_request();
    MPI_CHECK(
        MPI_Iallgather(mine, int(bytes), MPI_BYTE, all, int(bytes), MPI_BYTE, ranks, &requests->all[0]));
    return requests;
}

// MPI gathers and scatters the pieces, without a copy of the packet.
struct PacketType {
    void* data = nullptr;
    int count = 0;
    MPI_Datatype type = MPI_BYTE;

    explicit PacketType(const Packet& packet) {
        if (packet.pieces.empty()) return;
        if (packet.pieces.size() == 1) {
            data = packet.pieces[0].data;
            count = int(packet.bytes);
            return;
        }
        std::vector<int> lengths;
        std::vector<MPI_Aint> addresses;
        for (const auto& [address, bytes] : packet.pieces) {
            MPI_CHECK(MPI_Get_address(address, &addresses.emplace_back()));
            lengths.push_back(int(bytes));
        }
        MPI_CHECK(
            MPI_Type_create_hindexed(int(lengths.size()), lengths.data(), addresses.data(), MPI_BYTE, &type));
        MPI_CHECK(MPI_Type_commit(&type));
        data = MPI_BOTTOM;
        count = 1;
    }
    // Requests that use the type keep it.
    ~PacketType() {
        if (type != MPI_BYTE) MPI_Type_free(&type);
    }
    PacketType(const PacketType&) = delete;
};

static std::shared_ptr<Requests> begin_exchange(const std::vector<Packet>& sends,
                                                const std::vector<Packet>& receives) {
    auto requests = std::make_shared<Requests>();
    for (const Packet& p : receives) {
        const PacketType to(p);
        MPI_CHECK(MPI_Irecv(to.data, to.count, to.type, p.rank, 0, ranks, &requests->all.emplace_back()));
        requests->expected.push_back(int(p.bytes));
    }
    for (const Packet& p : sends) {
        const PacketType from(p);
        MPI_CHECK(
            MPI_Isend(from.data, from.count, from.type, p.rank, 0, ranks, &requests->all.emplace_back()));
        requests->expected.push_back(-1);
    }
    return requests;
}

static void keep(bool stays, int& rank, int& size) {
    if (all_ranks == MPI_COMM_NULL) MPI_CHECK(MPI_Comm_dup(ranks, &all_ranks));
    MPI_Comm part;
    MPI_CHECK(MPI_Comm_split(ranks, stays, rank, &part));
    MPI_CHECK(MPI_Comm_free(&ranks));
    ranks = part;
    MPI_CHECK(MPI_Comm_rank(ranks, &rank));
    MPI_CHECK(MPI_Comm_size(ranks, &size));
}

static std::shared_ptr<Requests> begin_end() {
    auto requests = one_request();
    MPI_CHECK(MPI_Ibarrier(all_ranks, &requests->all[0]));
    all_ranks = MPI_COMM_NULL;  // not freed, which could wait for ranks that train
    return requests;
}

static bool done(Requests& requests) {
    const int count = int(requests.all.size());
    std::vector<MPI_Status> statuses(requests.all.size());
    int finished = 0;
    const int error = MPI_Testall(count, requests.all.data(), &finished, statuses.data());
    if (error == MPI_ERR_IN_STATUS)
        for (const MPI_Status& status : statuses)
            if (status.MPI_ERROR != MPI_ERR_PENDING) check(status.MPI_ERROR, "message between ranks");
    check(error, "message between ranks");
    for (int i = 0; finished && i < count; i++) {
        int received = 0;
        if (requests.expected[i] < 0) continue;
        MPI_CHECK(MPI_Get_count(&statuses[i], MPI_BYTE, &received));
        if (received != requests.expected[i])
            fail("message from rank %d: %d bytes instead of %d", statuses[i].MPI_SOURCE, received,
                 requests.expected[i]);
    }
    if (finished) requests = {};
    return finished;
}

bool built_with_mpi() { return true; }

// Such as "Open MPI v4.1.4".
static std::string library_name() {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string name(text, size_t(length));
    return name.substr(0, name.find_first_of(",\n"));
}

// The lowest rank on this rank's machine, of every rank in MPI_COMM_WORLD.
static std::vector<int> leaders(int rank, int size) {
    MPI_Comm machine;
    MPI_CHECK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine));
    int leader = rank;
    MPI_CHECK(MPI_Bcast(&leader, 1, MPI_INT, 0, machine));
    MPI_CHECK(MPI_Comm_free(&machine));
    std::vector<int> all(size);
    MPI_CHECK(MPI_Allgather(&leader, 1, MPI_INT, all.data(), 1, MPI_INT, MPI_COMM_WORLD));
    return all;
}

// Numbers the ranks machine by machine: launchers may deal them out cyclically (srun --distribution=cyclic).
static Transport number_ranks() {
    int rank, size;
    MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    MPI_CHECK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    const std::vector<int> leader = leaders(rank, size);
    std::vector<int> order(size);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return leader[a] < leader[b]; });
    Transport job;
    job.size = size;
    job.rank = int(std::find(order.begin(), order.end(), rank) - order.begin());
    job.machines.assign(size, 0);
    for (int i = 1; i < size; i++)
        job.machines[i] = job.machines[i - 1] + (leader[order[i]] != leader[order[i - 1]]);
    MPI_CHECK(MPI_Comm_split(MPI_COMM_WORLD, 0, job.rank, &ranks));
    return job;
}

// Ends a process whose launcher does not answer, such as one that cannot accept connections. Between machines
// that may take longer.
struct LauncherWatch {
    std::mutex mutex;
    std::condition_variable changed;
    bool joined = false;
    std::thread thread{[this] {
        const char *local = getenv("OMPI_COMM_WORLD_LOCAL_SIZE"), *all = getenv("OMPI_COMM_WORLD_SIZE");
        const bool is_one_machine = local && all && std::string(local) == all;
        std::unique_lock lock(mutex);
        if (changed.wait_for(lock, std::chrono::seconds(120), [this] { return joined; })) return;
        fprintf(stderr, "%sthe job's launcher has not answered for 120 s\n",
                is_one_machine ? "" : "waiting: ");
        if (is_one_machine) end_at_once(1);
    }};
    ~LauncherWatch() {
        {
            const std::lock_guard lock(mutex);
            joined = true;
        }
        changed.notify_one();
        thread.join();
    }
};

static int init_mpi(int& provided) {
    // Open MPI's "put" over TCP, for messages of one block, halves the rate while all cores compute.
    const char* const protocol = "OMPI_MCA_btl_tcp_flags";
    if (!getenv(protocol)) set_environment(protocol, "send");
    const LauncherWatch watch;
    return MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
}

Transport join_mpi(int expected) {
    int provided = 0;
    if (init_mpi(provided) != MPI_SUCCESS) fail("MPI_Init_thread failed");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    Transport job = number_ranks();
    if (expected && expected != job.size)
        fail(
            "started as one of %d processes, but %s sees %d: use the mpirun of the MPI that this program was "
            "built with (with SLURM: srun --mpi=pmix)",
            expected, library_name().c_str(), job.size);
    job.threads = provided >= MPI_THREAD_SERIALIZED;
    job.begin_broadcast = begin_broadcast;
    job.begin_all_gather = begin_all_gather;
    job.begin_exchange = begin_exchange;
    job.done = done;
    job.keep = keep;
    job.begin_end = begin_end;
    job.leave = [] {
        if (all_ranks != MPI_COMM_NULL) MPI_Wait(&begin_end()->all[0], MPI_STATUS_IGNORE);
        MPI_Comm_free(&ranks);
        MPI_Finalize();
    };
    job.abort = [] { MPI_Abort(MPI_COMM_WORLD, 1); };
    return job;
}
