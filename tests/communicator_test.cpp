// Jobs of several processes: starts communicator_program under mpirun, whose checks end the job if they fail.
#include "llmc/distributed/communicator.h"

#include <gtest/gtest.h>

#ifndef _WIN32
#include <sys/resource.h>
#include <sys/stat.h>
#endif

#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "llmc/base/clock.h"
#include "llmc/base/os.h"
#include "llmc/distributed/transport.h"
#include "llmc/distributed/watch.h"
#include "tests/message_of.h"
#include "tests/run_program.h"

static const std::string PROGRAM = BINARY_DIR "/communicator_program";

static bool have_mpirun() {
    static const bool found = built_with_mpi() && program_succeeds({"mpirun", "--version"});
    return found;
}

static bool is_open_mpi() {
    static const bool open = run_program({"mpirun", "--version"}).out.find("Open MPI") != std::string::npos;
    return open;
}

#define NEED_MPI()                                                                                        \
    if (!have_mpirun())                                                                                   \
    GTEST_SKIP() << (built_with_mpi() ? "there is no mpirun (Debian: the package openmpi-bin)"            \
                                      : "this build is without MPI (Debian: the packages libopenmpi-dev " \
                                        "and openmpi-bin)")

struct JobOptions {
    std::string program = PROGRAM;
    std::string variable = "NOTHING=1";  // of the environment
    bool survive_death = false;          // Open MPI's mpirun lets a job continue in which a process died
};

static ProgramResult run_job(int processes, const Words& arguments, const JobOptions& options = {}) {
    // leaks of the MPI library are not ours
    Words argv = {"env", WITHOUT_LEAK_CHECK, options.variable, "timeout", "60", "mpirun"};
    if (is_open_mpi()) argv.insert(argv.end(), {"--oversubscribe", "--allow-run-as-root"});
    if (options.survive_death) argv.push_back("--enable-recovery");
    argv.insert(argv.end(), {"-np", std::to_string(processes), options.program});
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return run_program(argv);
}

static bool shared_files_exist() {
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", none))
        if (entry.path().filename().string().starts_with("vulkan_gpt2-")) return true;
    return false;
}

// Where files have names, a job that runs at the same time has them for less than a millisecond.
static void expect_no_shared_files() {
    for (int i = 0; i < 100 && shared_files_exist(); i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(shared_files_exist());
}

static void expect_done(const ProgramResult& result) {
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    EXPECT_TRUE(result.out.ends_with("done\n")) << result.out << result.err;
}

TEST(Communicator, OneProcessNeedsNoLauncher) {
    expect_done(run_program({PROGRAM, "everything"}));
    EXPECT_EQ(run_program({PROGRAM, "ranks"}).out, "rank 0/1 local 0/1 node 0/1 from 0 1\ndone\n");
    const ProgramResult failed = run_program({PROGRAM, "loss", "throw-node"});
    EXPECT_EQ(failed.status, 1);
    EXPECT_EQ(failed.err, "lost its way\n");
    const ProgramResult full = run_program({PROGRAM, "space", "200000000"});
    EXPECT_TRUE(full.out.starts_with("cannot get 200000000.0 MiB of memory for the gradients")) << full.out;
    EXPECT_TRUE(full.out.ends_with("\ndone\n")) << full.out;
}

TEST(Communicator, OneProcessRefusesMessages) {
    const auto c = join_job();
    char data[8] = "abc";
    EXPECT_EQ(message_of([&] { c->exchange({{0, data, 2}}, {}); }), "exchange: the job has one process");
    EXPECT_EQ(message_of([&] { c->broadcast(data, 1, -1); }), "broadcast: there is no rank -1 among 1");
    EXPECT_EQ(message_of([&] { c->agree([] { throw Error("no"); }); }), "no");
    EXPECT_THROW(c->agree([] { throw std::bad_alloc(); }), std::bad_alloc);  // as it was thrown
}

TEST(Communicator, NodesAreMachinesOrPartsOfThem) {
    using Ranks = std::vector<int>;
    EXPECT_EQ(first_ranks_of_nodes({0}, 0), (Ranks{0, 1}));
    EXPECT_EQ(first_ranks_of_nodes({0, 0, 0, 1, 1, 2}, 0), (Ranks{0, 3, 5, 6}));
    EXPECT_EQ(first_ranks_of_nodes({0, 0, 0, 0, 1, 1}, 2), (Ranks{0, 2, 4, 6}));
    EXPECT_EQ(first_ranks_of_nodes({0, 0, 0, 0, 0}, 2), (Ranks{0, 2, 4, 5}));
    EXPECT_EQ(first_ranks_of_nodes({0, 0}, 9), (Ranks{0, 2}));
    EXPECT_EQ(message_of([] {
                  first_ranks_of_nodes({0, 0, 0, 1, 1, 1}, 2);
              }),
              "2 ranks per node: ranks 2 and 3 would be one node, but run on two machines; use a number that "
              "divides the ranks of each machine");
}

// One packet for each rank, whose pieces are the messages in their order, neighbours joined; ranks in an
// order that begins after this one. Longer ones are cut.
TEST(Communicator, MessagesToARankArePackedTogether) {
    char data[100];
    const std::vector<Message> messages = {{0, data, 4},      {2, data + 50, 3}, {0, data + 4, 6},
                                           {0, data + 20, 5}, {1, nullptr, 0},   {3, data + 60, 1}};
    const auto text = [&](size_t max_part, int first, bool ascending) {
        std::string all;
        for (const Packet& p : packets_of(messages, max_part, 4, first, ascending)) {
            all += format_string("%d:", p.rank);
            size_t bytes = 0;
            for (const auto& [at, n] : p.pieces) {
                all += format_string(" %d+%zu", int(static_cast<char*>(at) - data), n);
                bytes += n;
            }
            all += "; ";
            EXPECT_EQ(bytes, p.bytes);
        }
        return all;
    };
    EXPECT_EQ(text(100, 1, true), "2: 50+3; 3: 60+1; 0: 0+10 20+5; 1:; ");
    EXPECT_EQ(text(100, 1, false), "0: 0+10 20+5; 3: 60+1; 2: 50+3; 1:; ");
    EXPECT_EQ(text(7, 3, true), "0: 0+7; 0: 7+3 20+4; 0: 24+1; 1:; 2: 50+3; 3: 60+1; ");
    EXPECT_EQ(message_of([&] {
                  packets_of({{4, data, 1}}, 7, 4, 0, true);
              }),
              "message: there is no rank 4 among 4");
}

TEST(Communicator, BuildWithoutMpi) {
    const std::string program = BINARY_DIR "/communicator_program_without_mpi";
    EXPECT_EQ(run_program("communicator_program_without_mpi ranks").out,
              "rank 0/1 local 0/1 node 0/1 from 0 1\ndone\n");
    for (const std::string variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
        expect_done(run_program({"env", variable + "=1", program, "ranks"}));
        const ProgramResult result = run_program({"env", variable + "=2", program, "ranks"});
        EXPECT_EQ(result.status, 1);
        const std::string on_windows =
            "this program cannot run as 2 processes on Windows: start one, or use Linux (also in WSL 2)\n";
        if (result.err == on_windows) continue;
        EXPECT_EQ(result.err,
                  "this program was built without MPI and cannot run as 2 processes: install MPI (Debian: "
                  "libopenmpi-dev openmpi-bin), then run cmake and build it again\n");
    }
    expect_refusal(run_program({"env", "PMIX_RANK=1", program, "ranks"}), "cannot run as several processes");
}

// A launcher of another MPI would start processes that each believe to be alone.
TEST(Communicator, LauncherOfAnotherMpi) {
    NEED_MPI();
    for (const char* variable : {"PMI_SIZE=4", "SLURM_STEP_NUM_TASKS=4"}) {
        const ProgramResult result = run_program({"env", WITHOUT_LEAK_CHECK, variable, PROGRAM, "ranks"});
        EXPECT_EQ(result.status, 1);
        EXPECT_EQ(result.out, "");
        EXPECT_TRUE(contains(result.err, "started as one of 4 processes, but "));
    }
}

TEST(Communicator, Jobs) {
    NEED_MPI();
    for (int processes : {1, 2, 3, 4}) expect_done(run_job(processes, {"everything"}));
    EXPECT_EQ(run_job(3, {"ranks"}).out,
              "rank 0/3 local 0/3 node 0/1 from 0 3\n"
              "rank 1/3 local 1/3 node 0/1 from 0 3\n"
              "rank 2/3 local 2/3 node 0/1 from 0 3\n"
              "done\n");
    expect_no_shared_files();
}

// GPU ranks sum on the CPU, too: eight with all cores each would be slower than one.
TEST(Communicator, RanksShareTheCores) {
    NEED_MPI();
    const JobOptions unbound = {.variable = "OMPI_MCA_hwloc_base_binding_policy=none"};
    for (const char* last : {"0", "cpu"})
        for (const int processes : {2, 3}) expect_done(run_job(processes, {"cores", last}, unbound));
}

TEST(Communicator, EmulatedNodes) {
    NEED_MPI();
    const JobOptions two = {.variable = "RANKS_PER_NODE=2"}, one = {.variable = "RANKS_PER_NODE=1"};
    EXPECT_EQ(run_job(4, {"ranks"}, two).out,
              "rank 0/4 local 0/2 node 0/2 from 0 2 4\n"
              "rank 1/4 local 1/2 node 0/2 from 0 2 4\n"
              "rank 2/4 local 0/2 node 1/2 from 0 2 4\n"
              "rank 3/4 local 1/2 node 1/2 from 0 2 4\n"
              "done\n");
    for (int processes : {3, 4}) expect_done(run_job(processes, {"everything"}, two));
    expect_done(run_job(2, {"everything"}, one));
}

TEST(Communicator, WrongMessagesEndTheJob) {
    NEED_MPI();
    const std::vector<std::array<std::string, 2>> cases = {{"shorter", "40 bytes instead of 60"},
                                                           {"longer", "message between ranks: "},
                                                           {"rank", "message: there is no rank 2 among 2"}};
    for (const auto& [name, message] : cases) {
        const ProgramResult result = run_job(2, {"wrong", name});
        EXPECT_NE(result.status, 0);
        EXPECT_EQ(count_of(result.err, message), 1) << result.err;
    }
}

// Reserving fails on all ranks with the same message, and they can go on.
TEST(Communicator, NoSpaceForSharedMemory) {
    NEED_MPI();
    const auto free = std::filesystem::space("/dev/shm").available >> 20;
    for (const char* variable : {"NOTHING=1", "RANKS_PER_NODE=2"}) {
        const ProgramResult result =
            run_job(4, {"space", std::to_string(free + 100)}, {.variable = variable});
        expect_done(result);
        EXPECT_TRUE(result.out.starts_with("/dev/shm on ")) << result.out;
        EXPECT_TRUE(contains(result.out,
                             format_string("but the gradients needs %d.0 MiB: enlarge it", int(free + 100))));
        EXPECT_TRUE(contains(result.out, "docker: --shm-size"));
    }
}

struct Loss {
    int processes;
    std::string how;  // end-wait, see the program
    std::string line;
    JobOptions options = {};
};

static void expect_loss(const Loss& loss) {
    SCOPED_TRACE(loss.how);
    const double start = now();
    const ProgramResult result = run_job(loss.processes, {"loss", loss.how}, loss.options);
    EXPECT_LT(now() - start, 30);  // mpirun's start included, while others may use the cores
    EXPECT_TRUE(result.status != 0 || loss.options.survive_death);
    EXPECT_EQ(count_of(result.err, loss.line), 1) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_FALSE(contains(result.err, "did not wait"));
    expect_no_shared_files();
}

TEST(Communicator, RankThatThrowsEndsTheJob) {
    NEED_MPI();
    for (const char* wait : {"node", "gather", "exchange"})
        expect_loss({3, std::string("throw-") + wait, "rank 2: lost its way\n"});
}

// What the message would be written to is gone with the rank's objects otherwise, and the rank crashes.
TEST(Communicator, RankThatThrowsWhileItReceivesEndsTheJobWithItsLine) {
    NEED_MPI();
    const ProgramResult result = run_job(3, {"receiving"}, {.variable = "RANKS_PER_NODE=1"});
    EXPECT_NE(result.status, 0);
    EXPECT_EQ(count_of(result.err, "rank 2: failed while it received\n"), 1) << result.err;
    EXPECT_FALSE(contains(result.err, "ignal")) << "a crash";
    expect_no_shared_files();
}

static std::string died(int rank) {
    return format_string("rank %d on %s has died\n", rank, host_name().c_str());
}

// Ranks notice the loss on their own, wherever they wait, and on whichever machine the rank was.
TEST(Communicator, RankThatDiesEndsTheJob) {
    NEED_MPI();
    if (!is_open_mpi()) GTEST_SKIP() << "only Open MPI's mpirun can leave a dead process to the others";
    for (const char* variable : {"NOTHING=1", "RANKS_PER_NODE=1"}) {
        const JobOptions survive = {.variable = variable, .survive_death = true};
        for (const char* wait : {"gather", "exchange"})
            expect_loss({3, std::string("kill-") + wait, died(2), survive});
        expect_loss({3, "exit-gather", died(2), survive});
        expect_loss({3, "kill0-gather", died(0), survive});
    }
    expect_loss({3, "kill-node", died(2), {.survive_death = true}});
}

// A rank that is stopped, like one whose GPU hangs, neither dies nor arrives.
TEST(Communicator, RankThatHangsEndsTheJobAfterTheTimeout) {
    NEED_MPI();
    const std::string host = host_name();
    for (const int rank : {0, 2}) {
        SCOPED_TRACE(rank);
        const double start = now();
        const ProgramResult result =
            run_job(3, {"loss", rank ? "stop-gather" : "stop0-gather"}, {.variable = "RANKS_PER_NODE=1"});
        EXPECT_LT(now() - start, 30);
        const std::string waits = format_string("waiting for rank %d on %s for 4 s\n", rank, host.c_str());
        EXPECT_EQ(count_of(result.err, waits), 1) << result.err;
        EXPECT_EQ(count_of(result.err, format_string("the job waited for rank %d on %s for 8 s (--timeout); "
                                                     "resume somewhere\n",
                                                     rank, host.c_str())),
                  1)
            << result.err;
    }
}

#ifndef _WIN32
// Its part lies in memory next to its cores, on computers with several processors.
TEST(Communicator, EachRankReservesItsOwnPartOfSharedMemory) {
    const size_t bytes = 3 << 20;
    SharedMemory memory;
    memory.create();
    memory.resize(bytes, "a test");
    memory.map(bytes, "a test");
    const auto reserved = [&] {
        struct stat status = {};
        fstat(memory.file, &status);
        return size_t(status.st_blocks) * 512;
    };
    ASSERT_EQ(reserved(), 0u);
    memory.reserve(1, 3, "a test");
    EXPECT_EQ(reserved(), bytes / 3);
    memset(memory.address + bytes / 3, 1, bytes / 3);  // what is reserved takes no more
    EXPECT_EQ(reserved(), bytes / 3);
    for (const int rank : {0, 2}) memory.reserve(rank, 3, "a test");
    EXPECT_EQ(reserved(), bytes);
}

#ifndef SANITIZED  // sanitizers need descriptors themselves
// Rank 0 watches a rank that connects to it, while this process can open no file for so many seconds.
static void watch_without_descriptors(double seconds) {
    Watch first({.rank = 0, .hosts = {"a", "b"}, .machines = {0, 0}});
    Watch second({.rank = 1, .hosts = {"a", "b"}, .machines = {0, 0}});
    const std::string address = first.listen();
    bool connected = false;
    std::thread connects([&] { connected = second.connect(address); });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    rlimit before = {};
    getrlimit(RLIMIT_NOFILE, &before);
    const rlimit none = {3, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    std::thread allows([&] {
        std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
        setrlimit(RLIMIT_NOFILE, &before);
    });
    const std::string error = message_of([&] { first.accept_all(); });
    connects.join();
    allows.join();
    EXPECT_EQ(connected, error.empty());
    if (!error.empty()) throw Error(error);
}

TEST(Communicator, ConnectionsThatCannotBeAcceptedForAMomentAreTriedAgain) {
    EXPECT_EQ(message_of([] { watch_without_descriptors(0.7); }), "");
}

TEST(Communicator, ConnectionsThatCannotBeAcceptedEndTheJobSoon) {
    const double start = now();
    EXPECT_EQ(message_of([] { watch_without_descriptors(4); }),
              "cannot accept connections of other ranks: Too many open files");
    EXPECT_LT(now() - start, 30);
}
#endif

// Nobody watches it then.
TEST(Communicator, ARankWithoutConnectionRunsOn) {
    Watch watch({.rank = 1, .hosts = {"a", "b"}, .machines = {0, 0}});
    EXPECT_FALSE(watch.connect("1 2 3 127.0.0.1"));
    watch.start();
    std::this_thread::sleep_for(std::chrono::milliseconds(1200));
}
#endif

// A rank that reads a file makes progress, however long it takes.
TEST(Communicator, RankThatReadsFilesIsWaitedFor) {
    NEED_MPI();
    const ProgramResult result = run_job(2, {"slow"});
    expect_done(result);
    EXPECT_FALSE(contains(result.err, "waiting"));
}

// With a launcher that ends the job, either the ranks or the launcher are first to name the dead one.
TEST(Communicator, KillsAtRandomMomentsLeaveNothingBehind) {
    NEED_MPI();
    for (int i = 0; i < 10; i++) {
        const int processes = 2 + i % 3, microseconds = i < 2 ? i * 100 : rand() % 100000;
        SCOPED_TRACE(microseconds);
        const double start = now();
        const ProgramResult result = run_job(processes, {"busy", std::to_string(microseconds)},
                                             {.variable = processes == 4 ? "RANKS_PER_NODE=2" : "NOTHING=1"});
        EXPECT_LT(now() - start, 30);
        EXPECT_NE(result.status, 0);
        const std::string rank = "rank " + std::to_string(processes - 1);
        const int lines = count_of(result.err, died(processes - 1)) + count_of(result.err, "process " + rank);
        EXPECT_TRUE(lines >= 1 || !is_open_mpi()) << result.err;
        expect_no_shared_files();
    }
}
