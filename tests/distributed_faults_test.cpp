// Training in several processes that are killed: nothing is lost, and the resumed run is bit-identical.
#include <sys/file.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "llmc/base/clock.h"
#include "tests/distributed_run.h"

// Starts the job, and after DELAY seconds kills what VICTIM names: a rank, or all of them and mpirun.
static const std::string kill_script = R"(
    timeout -k 5 60 "$@" & job=$!
    sleep $DELAY
    ranks=$(pgrep -f "^$PROGRAM .*$OUTPUT" | sort -n)
    case $VICTIM in
        all) kill -KILL $ranks $(pgrep -f "^mpirun .*$OUTPUT") ;;
        *) kill -KILL $(sed -n "$((VICTIM + 1))p" <<<"$ranks") ;;
    esac 2>/dev/null
    wait $job)";

static int num_kills() { return getenv("DISTRIBUTED_KILLS") ? atoi(getenv("DISTRIBUTED_KILLS")) : 3; }

// Every checkpoint that is complete before a kill is there after it, and loads.
static int newest_checkpoint(const std::string& folder) {
    const FoundCheckpoint found = find_latest_checkpoint(folder);
    EXPECT_TRUE(found.broken.empty()) << found.broken.front();
    return found.step;
}

TEST_F(Distributed, KillsAtRandomMomentsLoseNothing) {
    const int processes = 3, steps = 400;
    const Words options = {"-x", std::to_string(steps), "-n", "20", "-y", "1"};
    const double start_time = now();
    train(processes, options, "straight");
    const double duration = now() - start_time;
    std::mt19937 random(printed_seed("DISTRIBUTED_SEED"));
    int newest = -1, interrupted = 0, runs = 0;
    for (; interrupted < num_kills() && runs < 10 * num_kills(); runs++) {
        const std::string victim = interrupted % 2 ? "all" : std::to_string(random() % processes);
        const std::string delay = format_string("%.3f", duration * (0.2 + 0.0006 * double(random() % 1000)));
        SCOPED_TRACE("kills " + victim + " after " + delay + " s");
        // also between machines of one process, which compute the same
        const std::string per_machine = runs % 3 ? "1" : "3";
        const ProgramResult result =
            start(processes, with(options, {"--ranks-per-node", per_machine}), "killed",
                  {"env", "OUTPUT=" + folder("killed"), "PROGRAM=" + program, "DELAY=" + delay,
                   "VICTIM=" + victim, "bash", "-c", kill_script, "job"});
        interrupted += result.status != 0;
        const int found = newest_checkpoint(folder("killed"));
        EXPECT_GE(found, newest);
        newest = found;
        if (newest == steps) std::filesystem::remove_all(folder("killed")), newest = -1;
    }
    printf("%d of %d runs were killed\n", interrupted, runs);
    EXPECT_EQ(interrupted, num_kills());
    train(processes, options, "killed");
    EXPECT_TRUE(model_after("straight", steps) == model_after("killed", steps));
    EXPECT_TRUE(moments_after("straight", steps) == moments_after("killed", steps));
}

// A checkpoint of which one process has not written its part does not count.
TEST_F(Distributed, CheckpointWithAMissingPartIsNotUsed) {
    train(2, {"-x", "8", "-n", "4"}, "out");
    ASSERT_TRUE(remove(optimizer_part_path(folder("out"), 8, 1).c_str()) == 0);
    expect_ok(start(2, {"-x", "8", "-n", "4", "-y", "1"}, "out"),
              "the checkpoint of step 8 is broken: cannot open", "at step 4");
}

// The parts of all processes fail together; the run ends with one line.
TEST_F(Distributed, PartThatCannotBeWrittenEndsAll) {
    train(2, {"-x", "4", "-n", "4"}, "out");
    std::filesystem::create_directories(optimizer_part_path(folder("out"), 6, 1) + "/in the way");
    const ProgramResult result = start(2, {"-x", "6", "-n", "2", "-y", "1"}, "out");
    EXPECT_NE(result.status, 0);
    EXPECT_TRUE(contains(result.err, "rank 1: "));
    EXPECT_TRUE(contains(result.err, "state_00000006_00001.bin"));
    EXPECT_EQ(newest_checkpoint(folder("out")), 4);
}

// Each process's part has the order of the data, so the room for a checkpoint depends on their number.
TEST_F(Distributed, RoomForTheFirstCheckpointCountsAllParts) {
    train(2, {"-x", "1", "-n", "1"}, "out");
    const ModelConfig config = read_model_header(model_path(folder("out"), 1));
    OptimizerState state;
    const uint64_t one = checkpoint_bytes(config, state, false);
    state.share = {0, 2};
    const uint64_t room = (one + checkpoint_bytes(config, state, false)) / 2;
    const ProgramResult result =
        start(2, {"-x", "4", "-n", "4"}, "full",
              {"env", "LD_PRELOAD=" BINARY_DIR "/libfile_fault.so", "FILE_FAULT_FOLDER=" + folder("full"),
               "FILE_FAULT_FREE=" + std::to_string(room)});
    EXPECT_NE(result.status, 0);
    EXPECT_TRUE(contains(result.err, "no room for a checkpoint"));
    EXPECT_TRUE(data.losses(folder("full")).empty()) << "steps ran before the check";
}

// The other ranks do not wait for it until the timeout.
TEST_F(Distributed, ARankThatCannotReadTheCheckpointEndsAll) {
    train(2, {"-x", "4", "-n", "4"}, "out");
    const std::string script = R"(
        for ((i = 1; i <= $#; i++)); do [[ ${!i} == "$PROGRAM" ]] && break; done
        exec "${@:1:i-1}" bash -c 'if [[ $OMPI_COMM_WORLD_RANK == 1 ]]; then export LD_PRELOAD="$LIBRARY"; fi
            exec "$@"' rank "${@:i}")";
    const double start_time = now();
    const ProgramResult result =
        start(2, {"-x", "8", "-n", "4", "-y", "1"}, "out",
              {"env", "PROGRAM=" + program, "LIBRARY=" BINARY_DIR "/libfile_fault.so",
               "FILE_FAULT_FOLDER=" + run_path(folder("out"), 4), "FILE_FAULT=open:1+:EIO", "bash", "-c",
               script, "job"});
    EXPECT_LT(now() - start_time, 60);  // the timeout is 20 minutes
    EXPECT_NE(result.status, 0);
    EXPECT_TRUE(contains(result.err, "rank 1: "));
    EXPECT_TRUE(contains(result.err, "run_00000004.json: Input/output error"));
    EXPECT_EQ(newest_checkpoint(folder("out")), 4);
}

// Rank 0 alone opens the folder, which finishes a move that a kill interrupted, and looks for the checkpoint;
// the others must not look before. Another process holds the folder meanwhile, so that they could.
TEST_F(Distributed, OtherRanksResumeWhatRankZeroFinds) {
    train(2, {"-x", "8", "-n", "4"}, "out");
    write_whole_file(folder("out") + "/moving_earlier_run", {"earlier_1"});
    HeldFolder held;
    held.open(folder("out"));
    ASSERT_EQ(flock(held.descriptor, LOCK_EX | LOCK_NB), 0);
    std::thread holder([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        flock(held.descriptor, LOCK_UN);
    });
    const ProgramResult result = start(2, {"-x", "8", "-n", "4", "-y", "1"}, "out");
    holder.join();
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_TRUE(contains(result.out, "no checkpoint in " + folder("out") + " yet"));
    EXPECT_TRUE(file_exists(folder("out") + "/earlier_1/DONE_00000008"));
    EXPECT_EQ(newest_checkpoint(folder("out")), 8);
}
