// Started by communicator_test under mpirun: communicator_program SCENARIO [ARGUMENT]. Rank 0 prints results;
// a failed check ends the job with a line. The variable RANKS_PER_NODE is the argument of form_nodes().
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

#include "llmc/base/clock.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/os.h"
#include "llmc/distributed/communicator.h"
#include "llmc/run/processes.h"

static void expect(bool condition, const char* what) {
    if (!condition) fail("failed: %s", what);
}
#define EXPECT(condition) expect(condition, #condition)

static void ranks(Communicator& c, const std::string&) {
    std::string line = format_string("rank %d/%d local %d/%d node %d/%d from", c.rank, c.size, c.local_rank,
                                     c.local_size, c.node, c.num_nodes);
    for (int first : c.first_ranks) line += format_string(" %d", first);
    const std::vector<std::string> lines = c.gather(line);
    if (c.rank == 0)
        for (const std::string& text : lines) printf("%s\n", text.c_str());
}

// 1e16 + 1 + ... loses the small values, in an order that shows in the result.
static double term(int rank, int i) {
    const double terms[] = {1e16, 1.25, -1e16, 3.5};
    return terms[(rank + i) % 4] / (i + 1);
}

static void reductions(Communicator& c) {
    for (int count : {0, 1, 7, 1000}) {
        std::vector<double> values(count), sums(count);
        std::vector<int64_t> largest(count);
        for (int i = 0; i < count; i++) {
            values[i] = sums[i] = term(0, i);
            for (int r = 1; r < c.size; r++) sums[i] += term(r, i);
            if (c.rank > 0) values[i] = term(c.rank, i);
            largest[i] = (c.rank + i) % c.size + (int64_t(1) << 60);
        }
        c.all_reduce_sum(values.data(), count);
        c.all_reduce_max(largest.data(), count);
        EXPECT(count == 0 || memcmp(values.data(), sums.data(), count * sizeof(double)) == 0);
        for (int64_t value : largest) EXPECT(value == c.size - 1 + (int64_t(1) << 60));
    }
    double sum = -0.0;
    c.all_reduce_sum(&sum, 1);
    EXPECT(sum == 0 && std::signbit(sum));
}

static unsigned char content(size_t i, int from, int to) {
    return (unsigned char)(i * 7 + i / 251 + from * 31 + to);
}

static std::vector<unsigned char> contents(size_t bytes, int from, int to) {
    std::vector<unsigned char> data(bytes);
    for (size_t i = 0; i < bytes; i++) data[i] = content(i, from, to);
    return data;
}

static void broadcasts(Communicator& c) {
    c.max_part = 1000;
    for (int root = 0; root < c.size; root++)
        for (size_t bytes : {0, 1, 999, 1000, 1001, 12345}) {
            std::vector<unsigned char> data(bytes);
            if (c.rank == root) data = contents(bytes, root, 0);
            c.broadcast(data.data(), bytes, root);
            EXPECT(data == contents(bytes, root, 0));
        }
    for (size_t longest : {0, 10, 5000}) {
        auto text = [&](int rank) { return std::string(longest * rank, char('a' + rank)); };
        const std::vector<std::string> texts = c.gather(text(c.rank));
        EXPECT(int(texts.size()) == c.size);
        for (int r = 0; r < c.size; r++) EXPECT(texts[r] == text(r));
    }
}

// Each rank of a node writes its part; all see the parts of their node, and of no other.
static void shared(Communicator& c) {
    for (size_t part : {1, 30001}) {
        const size_t bytes = part * c.local_size;
        auto* first = static_cast<unsigned char*>(c.allocate_shared(bytes, "first"));
        auto* second = static_cast<unsigned char*>(c.allocate_shared(bytes, "second"));
        EXPECT(uintptr_t(first) % 65536 == 0 && uintptr_t(second) % 65536 == 0);
        for (size_t i = 0; i < bytes; i++) EXPECT(first[i] == 0 && second[i] == 0);
        c.node_barrier();
        for (size_t i = 0; i < part; i++) {
            first[c.local_rank * part + i] = content(i, c.rank, 1);
            second[c.local_rank * part + i] = content(i, c.rank, 2);
        }
        c.node_barrier();
        for (int r = 0; r < c.local_size; r++)
            for (size_t i = 0; i < part; i++) {
                EXPECT(first[r * part + i] == content(i, c.first_ranks[c.node] + r, 1));
                EXPECT(second[r * part + i] == content(i, c.first_ranks[c.node] + r, 2));
            }
    }
}

// A counter that all ranks of the node read between two barriers, many times.
static void barriers(Communicator& c) {
    auto* counts = static_cast<volatile int*>(c.allocate_shared(64 * size_t(c.local_size), "counts"));
    for (int round = 1; round <= 2000; round++) {
        counts[16 * c.local_rank] = round;
        if (round % 500 == c.local_rank) usleep(1000);  // the others block
        c.node_barrier();
        for (int r = 0; r < c.local_size; r++) EXPECT(counts[16 * r] == round);
        c.node_barrier();
    }
}

// Messages between all ranks, also to themselves, in two exchanges.
static void exchanges(Communicator& c) {
    const std::vector<size_t> sizes = {0, 1, 4097, 70001};
    for (size_t max_part : {size_t(1000), size_t(1) << 30}) {
        c.max_part = max_part;
        std::vector<std::vector<unsigned char>> sent, received;
        std::vector<Message> sends[2], receives[2];
        auto add = [&](int half, int to, size_t bytes) {
            sent.push_back(contents(bytes, c.rank, to + half));
            received.push_back(std::vector<unsigned char>(bytes));
            sends[half].push_back({to, bytes ? sent.back().data() : nullptr, bytes});
            receives[half].push_back({to, bytes ? received.back().data() : nullptr, bytes});
        };
        for (int half : {0, 1})
            for (int to = 0; to < c.size; to++)
                for (size_t bytes : sizes) add(half, to, bytes);
        for (int half : {0, 1}) c.exchange(sends[half], receives[half]);
        size_t i = 0;
        for (int half : {0, 1})
            for (int from = 0; from < c.size; from++)
                for (size_t bytes : sizes) EXPECT(received[i++] == contents(bytes, from, c.rank + half));
    }
    c.exchange({}, {});
}

// Exchanges that are under way while the ranks compute and call other functions, finished in another order.
static void exchanges_at_once(Communicator& c) {
    const int count = 5;
    std::vector<std::vector<unsigned char>> sent, received(count);
    std::vector<std::shared_ptr<Exchange>> under_way;
    const int to = (c.rank + 1) % c.size, from = (c.rank + c.size - 1) % c.size;
    for (int i = 0; i < count; i++) {
        const size_t bytes = 300000 * size_t(i) + 1;
        sent.push_back(contents(bytes, c.rank, i));
        received[i].resize(bytes);
        under_way.push_back(
            c.begin_exchange({{to, sent[i].data(), bytes}}, {{from, received[i].data(), bytes}}));
        c.gather("between");
    }
    for (const int i : {4, 0, 2, 1, 3}) {
        c.finish(under_way[i]);
        c.finish(under_way[i]);
        EXPECT(received[i] == contents(received[i].size(), from, i));
    }
}

static void everything(Communicator& c, const std::string&) {
    reductions(c);
    broadcasts(c);
    shared(c);
    barriers(c);
    if (c.size > 1) exchanges(c);
    if (c.size > 1) exchanges_at_once(c);
}

// Both sides disagree about the size, or the rank does not exist.
static void wrong_messages(Communicator& c, const std::string& which) {
    std::vector<char> data(100);
    const int other = c.size - 1 - c.rank;
    if (which == "shorter") c.exchange({{other, data.data(), 40}}, {{other, data.data() + 40, 60}});
    if (which == "longer") c.exchange({{other, data.data(), 60}}, {{other, data.data() + 60, 40}});
    if (which == "rank") c.exchange({{c.size, data.data(), 60}}, {});
    fail("not refused");
}

// Stops this process, all its threads, for longer than any test waits; leaves nothing behind.
static void stop_for_a_while() {
    if (fork() == 0) {
        const pid_t parent = getppid();
        sleep(40);
        kill(parent, SIGKILL);
        _exit(0);
    }
    raise(SIGSTOP);
}

// The last rank, or rank 0 ("kill0"), dies, leaves, throws or hangs while the others wait for it.
static void loss(Communicator& c, const std::string& how) {
    const size_t word = how.find('-');
    std::string end = how.substr(0, word), wait = how.substr(word + 1);
    const bool first = end.ends_with('0');
    if (first) end.pop_back();
    const int lost = first ? 0 : c.size - 1;
    c.set_ending(end == "stop" ? 8 : 1200, end == "stop" ? "resume somewhere" : "");
    if (c.rank == lost) {
        usleep(300000);  // until the others block
        if (end == "kill") raise(SIGKILL);
        if (end == "stop") stop_for_a_while();
        if (end == "throw") fail("lost its way");
        if (end == "exit") _exit(0);
    }
    char data;
    if (wait == "node") c.node_barrier();
    if (wait == "gather") c.gather("");
    if (wait == "exchange") c.exchange({}, {{lost, &data, 1}});
    fail("did not wait");
}

// The last rank reads files for longer than the timeout.
static void slow(Communicator& c, const std::string&) {
    c.set_ending(3, "");
    const double begin = now();
    while (c.rank == c.size - 1 && now() < begin + 8) {
        first_bytes("/proc/self/cmdline", 10);
        usleep(200000);
    }
    c.gather("");
}

// Does a little of everything until it is killed after some microseconds.
static void busy(Communicator& c, const std::string& microseconds) {
    if (c.rank == c.size - 1) {
        const int time = atoi(microseconds.c_str());
        std::thread([time] {
            usleep(useconds_t(time));
            raise(SIGKILL);
        }).detach();
    }
    for (;;) {
        c.allocate_shared(100000, "memory");
        c.node_barrier();
    }
}

// More than the machine has; then the ranks agree that it failed and go on.
static void space(Communicator& c, const std::string& mib) {
    try {
        c.allocate_shared(size_t(atoll(mib.c_str())) << 20, "the gradients");
        fail("not refused");
    } catch (const Error& error) {
        for (const std::string& message : c.gather(error.what())) EXPECT(message == error.what());
        if (c.rank == 0) printf("%s\n", error.what());
    }
}

// The last rank fails while it receives a message, and takes a while to end.
static const char* const while_receiving = "failed while it received";
static void fail_while_receiving(Communicator& c, const std::string&) {
    const size_t bytes = size_t(256) << 20;
    void* const memory = c.allocate_shared(bytes, "messages");
    const int last = c.size - 1;
    if (c.rank == last) {
        c.begin_exchange({}, {{0, memory, bytes}});
        fail(while_receiving);
    }
    if (c.rank == 0) c.exchange({{last, memory, bytes}}, {});
    c.gather("");
}

// The last rank has this device, the others a GPU each: its number of threads.
static void cores(Communicator& c, const std::string& last) {
    unsetenv("OMP_NUM_THREADS");
    Options o;
    o.device = c.rank + 1 == c.size ? last : "0";
    device_of_process(o, c);
    const int all = std::min(omp_get_num_procs(), cpu_quota());
    const int others = last == "cpu" ? 1 : std::max(1, all / c.size);
    const int want = last == "cpu" && o.device == "cpu" ? std::max(1, all - (c.size - 1)) : others;
    if (omp_get_num_procs() == online_cpus()) EXPECT(omp_get_max_threads() == want);
    c.machine_rank = 0, c.machine_size = 1;  // as if each had a machine of its own
    share_cores(o, std::vector<bool>(size_t(c.size), true), c);
    if (omp_get_num_procs() == online_cpus()) EXPECT(omp_get_max_threads() == all);
}

int main(int argc, char** argv) {
    const std::map<std::string, void (*)(Communicator&, const std::string&)> scenarios = {
        {"ranks", ranks},
        {"everything", everything},
        {"wrong", wrong_messages},
        {"loss", loss},
        {"receiving", fail_while_receiving},
        {"busy", busy},
        {"space", space},
        {"slow", slow},
        {"cores", cores}};
    prepare_standard_streams();
    try {
        const auto communicator = join_job();
        const char* ranks_per_node = getenv("RANKS_PER_NODE");
        communicator->form_nodes(ranks_per_node ? atoi(ranks_per_node) : 0);
        scenarios.at(argc > 1 ? argv[1] : "")(*communicator, argc > 2 ? argv[2] : "");
        communicator->gather("");  // all have come this far
        if (communicator->rank == 0) printf("done\n");
    } catch (const std::exception& error) {
        if (std::string(error.what()) == while_receiving) usleep(500000);
        abort_job(error.what());
    }
    return 0;
}
