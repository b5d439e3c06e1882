// What all jobs have in common, and jobs of one process: see communicator.h. Values travel as bytes and are
// added by each rank in the same order, so sums depend on nothing but the values.
#include "llmc/distributed/communicator.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "llmc/base/clock.h"
#include "llmc/base/error.h"
#include "llmc/base/os.h"
#include "llmc/base/signals.h"
#include "llmc/distributed/node_barrier.h"
#include "llmc/distributed/transport.h"
#include "llmc/distributed/watch.h"

struct Exchange {
    std::vector<Packet> sends, receives;
    std::shared_ptr<Requests> requests = nullptr;  // null: not begun
    std::atomic<bool> done = false;
    std::exception_ptr error = nullptr;
};

// Exchanges, one after another. They advance whenever a thread calls advance(): their own, or one that waits
// for them. Calls of the transport hold the mutex.
struct Exchanges {
    std::mutex mutex;
    std::deque<std::shared_ptr<Exchange>> queue;
    std::condition_variable changed;
    std::thread thread;
    bool stops = false;

    void begin(const Transport& transport, const std::shared_ptr<Exchange>& exchange);
    void advance(const Transport& transport);
    void run(const Transport& transport);
    void stop();
    ~Exchanges() { stop(); }
};

// The process is in one job at most. It stays here until the rank has left normally, for abort_job().
struct Job {
    Transport transport;
    std::optional<NodeBarrier> barrier;
    std::unique_ptr<Watch> watch;
    Exchanges exchanges;
    std::string agreed_error;  // the last one that agree() threw
    int agreed_rank = 0;       // where it happened
};
static std::optional<Job> job;

// The main thread waits for other ranks.
struct WaitingTime {
    explicit WaitingTime(double& total) : waiting(job->watch), seconds(total) {}
    ~WaitingTime() { seconds += now() - start; }

   private:
    const Watch::Waiting waiting;
    double& seconds;
    const double start = now();
};

// --- the end ---

// Ends the job, and prints the line unless another rank does both.
[[noreturn]] static void end_job(const std::string& line, bool other_rank_prints = false) {
    const bool prints = !other_rank_prints && (!job || !job->barrier || job->barrier->claim_abort());
    if (prints) fprintf(stderr, "%s\n", line.c_str());
    fflush(nullptr);
    if (prints && job && job->watch) job->watch->end_others();
    if (!prints)
        std::this_thread::sleep_for(std::chrono::seconds(2));  // the other rank ends this process meanwhile
    if (!job) end_at_once(1);
    const std::lock_guard lock(job->exchanges.mutex);
    job->transport.abort();
    end_at_once(1);
}

void abort_job(const std::string& message) {
    if (!job) end_job(message);
    const int rank = job->transport.rank;
    const bool agreed = !job->agreed_error.empty() && message.ends_with(job->agreed_error);
    end_job(format_string("rank %d: ", rank) + message, agreed && rank != job->agreed_rank);
}

Communicator::~Communicator() {
    if (!job) return;
    if (std::uncaught_exceptions() > exceptions) {
        new std::list(std::move(regions));  // messages that are under way may still write to them
        return;
    }
    job->exchanges.stop();
    if (job->watch) job->watch->leave();
    job->transport.leave();
    job.reset();
}

void Communicator::set_ending(double timeout_seconds, const std::string& advice) {
    if (!job) return;
    job->watch->set_timeout(timeout_seconds);
    job->watch->set_advice(advice);
}

// --- joining ---

// The number of processes that the launcher started; 0 if there is a launcher that does not say.
static int started_processes() {
    for (const char* name :
         {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"})
        if (const char* value = getenv(name)) return std::max(1, atoi(value));
    return getenv("PMIX_RANK") || getenv("PMI_RANK") ? 0 : 1;
}

bool has_launcher() {
    return started_processes() != 1 || getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_SIZE");
}

std::vector<int> first_ranks_of_nodes(const std::vector<int>& machines, int ranks_per_node) {
    const int size = int(machines.size());
    std::vector<int> first_ranks;
    for (int rank = 0; rank < size; rank++) {
        const bool other_machine = rank > 0 && machines[rank] != machines[rank - 1];
        const bool first = ranks_per_node ? rank % ranks_per_node == 0 : rank == 0 || other_machine;
        if (first) first_ranks.push_back(rank);
        if (other_machine && !first)
            fail(
                "%d ranks per node: ranks %d and %d would be one node, but run on two machines; use a number "
                "that divides the ranks of each machine",
                ranks_per_node, rank - 1, rank);
    }
    first_ranks.push_back(size);
    return first_ranks;
}

std::unique_ptr<Communicator> join_job() {
    if (job) fail("join_job: this process is in a job already");
    std::unique_ptr<Communicator> communicator(new Communicator);
    const int expected = started_processes();
    if (expected != 1) {
        Transport transport = join_mpi(expected);
        job.emplace().transport = std::move(transport);
        communicator->rank = job->transport.rank;
        communicator->size = job->transport.size;
        communicator->watch_ranks();
    }
    return communicator;
}

void Communicator::watch_ranks() {
    WatchedRanks ranks = {.rank = rank, .hosts = gather(host_name()), .machines = job->transport.machines};
    auto watch = std::make_unique<Watch>(ranks);
    const std::string address = gather(rank == 0 ? watch->listen() : "").front();
    bool connected = true;
    try {
        if (rank > 0)
            connected = watch->connect(address);
        else if (!address.empty())
            watch->accept_all();
    } catch (const Error& error) {
        abort_job(error.what());  // the others wait for their connections
    }
    const std::vector<std::string> failed = gather(connected ? "" : "not connected");
    for (int r = 0; rank == 0 && r < size; r++)
        if (!failed[r].empty())
            warn(
                "rank %d on %s cannot connect to rank 0 on %s by TCP, so nobody notices if it dies: let the "
                "job's machines connect to each other",
                r, ranks.hosts[r].c_str(), ranks.hosts[0].c_str());
    job->watch = std::move(watch);
    job->watch->start();
}

void Communicator::form_nodes(int ranks_per_node) {
    if (!job) return;
    broadcast(&ranks_per_node, sizeof ranks_per_node, 0);
    if (ranks_per_node < 0) fail("form_nodes: %d ranks in a node", ranks_per_node);
    const std::vector<int>& machines = job->transport.machines;
    agree([&] { first_ranks = first_ranks_of_nodes(machines, ranks_per_node); });
    const auto [first, end] = std::equal_range(machines.begin(), machines.end(), machines[rank]);
    machine_rank = rank - int(first - machines.begin());
    machine_size = int(end - first);
    num_nodes = int(first_ranks.size()) - 1;
    node = 0;
    while (first_ranks[node + 1] <= rank) node++;
    local_rank = rank - first_ranks[node];
    local_size = first_ranks[node + 1] - first_ranks[node];
    open_node_barrier();
}

// --- collective functions ---

void Communicator::wait(Requests& requests) {
    const WaitingTime waiting(waited);
    for (Polling polling;; polling.pause()) {
        const std::lock_guard lock(job->exchanges.mutex);
        if (job->transport.done(requests)) return;
    }
}

static std::shared_ptr<Requests> locked(const std::function<std::shared_ptr<Requests>()>& begin) {
    const std::lock_guard lock(job->exchanges.mutex);
    return begin();
}

void Communicator::broadcast(void* data, size_t bytes, int root) {
    if (root < 0 || root >= size) fail("broadcast: there is no rank %d among %d", root, size);
    for (size_t done = 0; size > 1 && done < bytes; done += max_part) {
        const size_t part = std::min(max_part, bytes - done);
        wait(*locked(
            [&] { return job->transport.begin_broadcast(static_cast<char*>(data) + done, part, root); }));
    }
}

void Communicator::all_gather(const void* mine, size_t bytes, void* all) {
    if (size > 1)
        wait(*locked([&] { return job->transport.begin_all_gather(mine, bytes, all); }));
    else if (bytes > 0)
        memcpy(all, mine, bytes);
}

void Communicator::all_reduce_sum(double* values, int count) {
    std::vector<double> all(size_t(count) * size);
    all_gather(values, size_t(count) * sizeof *values, all.data());
    std::copy_n(all.begin(), count, values);
    for (int r = 1; r < size; r++)
        for (int i = 0; i < count; i++) values[i] += all[size_t(r) * count + i];
}

void Communicator::all_reduce_max(int64_t* values, int count) {
    std::vector<int64_t> all(size_t(count) * size);
    all_gather(values, size_t(count) * sizeof *values, all.data());
    for (int r = 0; r < size; r++)
        for (int i = 0; i < count; i++) values[i] = std::max(values[i], all[size_t(r) * count + i]);
}

std::vector<std::string> Communicator::gather(const std::string& text) {
    const size_t length = text.size();
    std::vector<size_t> lengths(size);
    all_gather(&length, sizeof length, lengths.data());
    std::vector<std::string> texts(size);
    texts[rank] = text;
    for (int r = 0; r < size; r++) {
        texts[r].resize(lengths[r]);
        broadcast(texts[r].data(), texts[r].size(), r);
    }
    return texts;
}

std::vector<double> Communicator::gather(double number) {
    std::vector<double> all(static_cast<size_t>(size));
    all_gather(&number, sizeof number, all.data());
    return all;
}

// --- a smaller job ---

// Of a process that is left out. It must not take time from the others, and its signals are for them.
static void wait_for_end(Requests& requests, int64_t first_process) {
    for (;; std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
        pass_signals_on(first_process);
        const std::lock_guard lock(job->exchanges.mutex);
        if (job->transport.done(requests)) return;
    }
}

bool Communicator::keep(const std::vector<bool>& members) {
    Transport& transport = job->transport;
    const size_t first = size_t(std::find(members.begin(), members.end(), true) - members.begin());
    const int64_t first_process = std::stoll(gather(std::to_string(process_id()))[first]);
    const bool stays = members[size_t(rank)];
    transport.keep(stays, transport.rank, transport.size);
    if (!stays) {
        job->watch->leave();  // the others do not wait for it, nor it for their next step
        wait_for_end(*locked(transport.begin_end), first_process);
        return false;
    }
    rank = transport.rank;
    size = transport.size;
    transport.machines.assign(size_t(size), 0);
    job->barrier.reset();
    form_nodes();
    return true;
}

// --- memory shared within a node ---

void Communicator::agree(const std::function<void()>& action) {
    if (!job) return action();
    std::string error;
    try {
        action();
    } catch (const std::exception& caught) {
        error = message_for(caught);
    }
    int64_t failed = !error.empty();
    all_reduce_max(&failed, 1);
    if (!failed) return;
    const std::vector<std::string> errors = gather(error);
    int first = 0;
    while (errors[first].empty()) first++;
    job->agreed_error = errors[first];
    job->agreed_rank = first;
    throw Error(errors[first]);
}

SharedMemory Communicator::map_shared(size_t bytes, const std::string& purpose) {
    SharedMemory memory;
    const bool alone = local_size == 1, creates = !alone && local_rank == 0;
    agree([&] {
        if (creates) memory.create();
    });
    const std::string path = gather(memory.path)[first_ranks[node]];
    agree([&] {
        if (!alone && !creates) memory.open(path);
    });
    agree([&] {
        if (!creates) return;
        memory.unlink();
        memory.resize(bytes, purpose);
    });
    agree([&] {
        memory.map(bytes, purpose);
        memory.reserve(local_rank, local_size, purpose);
    });
    return memory;
}

void* Communicator::allocate_shared(size_t bytes, const char* what) {
    SharedMemory memory = map_shared(bytes, what);
    memory.close_file();
    return regions.emplace_back(std::move(memory)).address;
}

void Communicator::free_shared(const void* address) {
    regions.remove_if([&](const SharedMemory& memory) { return memory.address == address; });
}

// --- the node's barrier ---

void Communicator::open_node_barrier() {
    SharedMemory memory = map_shared(NodeBarrier::bytes(), "the processes' barrier");
    std::optional<NodeBarrier> barrier;
    agree([&] {
        if (local_size > 1) barrier.emplace(std::move(memory), local_size);
    });
    if (barrier) job->barrier.emplace(std::move(*barrier));
}

void Communicator::node_barrier() {
    if (local_size == 1) return;
    const WaitingTime waiting(waited);
    job->barrier->wait();
}

// --- messages ---

static void add_piece(Packet& packet, char* data, size_t bytes) {
    packet.bytes += bytes;
    auto& pieces = packet.pieces;
    if (!pieces.empty() && static_cast<char*>(pieces.back().data) + pieces.back().bytes == data)
        pieces.back().bytes += bytes;
    else
        pieces.push_back({data, bytes});
}

std::vector<Packet> packets_of(const std::vector<Message>& messages, size_t max_part, int size, int first,
                               bool ascending) {
    std::vector<std::vector<Packet>> by_rank(size);
    for (const Message& m : messages) {
        if (m.rank < 0 || m.rank >= size) fail("message: there is no rank %d among %d", m.rank, size);
        std::vector<Packet>& packets = by_rank[m.rank];
        if (packets.empty()) packets.push_back({m.rank, {}});
        for (size_t done = 0; done < m.bytes;) {
            if (packets.back().bytes == max_part) packets.push_back({m.rank, {}});
            const size_t part = std::min(max_part - packets.back().bytes, m.bytes - done);
            add_piece(packets.back(), static_cast<char*>(m.data) + done, part);
            done += part;
        }
    }
    std::vector<Packet> all;
    for (int i = 1; i <= size; i++) {
        auto& packets = by_rank[(first + (ascending ? i : size - i)) % size];
        std::move(packets.begin(), packets.end(), std::back_inserter(all));
    }
    return all;
}

void Exchanges::begin(const Transport& transport, const std::shared_ptr<Exchange>& exchange) {
    {
        const std::lock_guard lock(mutex);
        queue.push_back(exchange);
    }
    advance(transport);
    if (!transport.threads) return;
    if (!thread.joinable()) thread = std::thread([&] { run(transport); });
    changed.notify_one();
}

// An error is that of the exchange, whose finish() throws it.
void Exchanges::advance(const Transport& transport) {
    const std::lock_guard lock(mutex);
    while (!queue.empty()) {
        Exchange& first = *queue.front();
        try {
            if (!first.requests) first.requests = transport.begin_exchange(first.sends, first.receives);
            if (!transport.done(*first.requests)) return;
        } catch (...) {
            first.error = std::current_exception();
        }
        first.done = true;
        queue.pop_front();
    }
}

void Exchanges::run(const Transport& transport) {
    const auto interval = std::chrono::milliseconds(1);  // shorter ones cost the cores that compute more
    for (std::unique_lock lock(mutex); !stops; lock.lock()) {
        changed.wait(lock, [this] { return stops || !queue.empty(); });
        lock.unlock();
        advance(transport);
        std::this_thread::sleep_for(interval);
    }
}

void Exchanges::stop() {
    if (!thread.joinable()) return;
    {
        const std::lock_guard lock(mutex);
        stops = true;
    }
    changed.notify_one();
    thread.join();
}

std::shared_ptr<Exchange> Communicator::begin_exchange(const std::vector<Message>& sends,
                                                       const std::vector<Message>& receives) {
    if (!job) fail("exchange: the job has one process");
    auto exchange = std::make_shared<Exchange>();
    exchange->sends = packets_of(sends, max_part, size, rank, true);
    exchange->receives = packets_of(receives, max_part, size, rank, false);
    job->exchanges.begin(job->transport, exchange);
    return exchange;
}

void Communicator::finish(const std::shared_ptr<Exchange>& exchange) {
    const WaitingTime waiting(waited);
    for (Polling polling; !exchange->done; polling.pause()) job->exchanges.advance(job->transport);
    if (exchange->error) std::rethrow_exception(exchange->error);
}

void Communicator::exchange(const std::vector<Message>& sends, const std::vector<Message>& receives) {
    finish(begin_exchange(sends, receives));
}
