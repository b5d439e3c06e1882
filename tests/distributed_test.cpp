// Training in several processes, started by mpirun: they train like one process with the batch of all, runs
// repeat bit-identically, a run resumes with another number of processes, and what does not fit is refused.
#include <cmath>

#include "llmc/base/os.h"
#include "tests/distributed_run.h"

static void expect_near(const std::vector<double>& got, const std::vector<double>& want, double tolerance) {
    ASSERT_EQ(got.size(), want.size());
    ASSERT_FALSE(got.empty());
    for (size_t i = 0; i < got.size(); i++) EXPECT_NEAR(got[i], want[i], tolerance) << "step " << i;
}

// Numbers of processes differ in the order of additions. At twice this learning rate, some of them overflow
// in fp16 and skip a step that others take.
static const std::string learning_rate = "0.005";
static double loss_tolerance(const std::string& precision) {
    return precision == "fp32" ? 1e-5 : 1e-2;  // measured: 2e-6 and 2e-3
}

// Of losses in main.log, which has four digits.
static const double log_tolerance = 1e-4;

TEST_F(Distributed, TrainsLikeOneProcess) {
    for (const std::string& where : devices())
        for (const std::string precision : {"fp32", "bf16", "fp16"}) {
            // kernels take long to compile; RunsRepeatBitIdentically has bf16 on the device
            if (where != "cpu" && precision == "bf16") continue;
            const Words options = {"--device", where, "--precision", precision, "-l", learning_rate};
            const std::vector<double> one = train(1, options, "one");
            ASSERT_EQ(one.size(), size_t(STEPS));
            EXPECT_LT(one.back(), 0.9 * one.front()) << "the model learns nothing";
            for (int processes : {2, 3}) {
                if (where != "cpu" && processes == 2) continue;
                const std::vector<double> several = train(processes, options, "several");
                expect_near(several, one, loss_tolerance(precision));
                expect_near(data.losses(folder("several")), several, log_tolerance);
            }
        }
}

// The mean is over the targets that count in all processes, of which one may have few, or none.
TEST_F(Distributed, MasksTrainLikeOneProcess) {
    mask_data();
    const Words options = {"-l", learning_rate, "-d", "204"};
    const std::vector<double> one = train(1, options, "one");
    EXPECT_LT(one.back(), 0.98 * one.front()) << "the model learns nothing";
    for (const int processes : {2, 3}) {
        expect_near(train(processes, options, "several"), one, loss_tolerance("fp32"));
        expect_near(data.losses(folder("several")), data.losses(folder("one")), log_tolerance);
    }
}

// 3 processes divide no tensor of this model evenly.
TEST_F(Distributed, RunsRepeatBitIdentically) {
    for (const std::string& where : devices())
        for (const std::string precision : {"bf16", "fp32"}) {
            if (where != "cpu" && precision == "fp32") continue;
            const Words options = {"--device", where, "--precision", precision, "-d", "204",       "-x",
                                   "4",        "-n",  "4",           "-v",      "0",  "--dropout", "0.2"};
            for (const char* output : {"a", "b"}) train(3, options, output);
            EXPECT_TRUE(model_after("a", 4) == model_after("b", 4)) << where << " " << precision;
            EXPECT_TRUE(moments_after("a", 4) == moments_after("b", 4)) << where << " " << precision;
            EXPECT_TRUE(file_exists(folder("a") + "/state_00000004_00002.bin"));
        }
}

// On a device with memory of its own, each process keeps its part of the state in the host's.
TEST_F(Distributed, OffloadingTheOptimizerIsBitIdentical) {
    if (device() == "none") GTEST_SKIP() << "LLMC_TEST_DEVICE=none: no Vulkan device is to be used";
    setenv("LAUNCHPAD_STAGED", "1", 1);
    for (const std::string offload : {"none", "optimizer"})
        train(3, args("--device", device(), "--precision bf16 -x 4 -n 4 -v 0 --offload", offload), offload);
    unsetenv("LAUNCHPAD_STAGED");
    EXPECT_TRUE(model_after("none", 4) == model_after("optimizer", 4));
    EXPECT_TRUE(moments_after("none", 4) == moments_after("optimizer", 4));
}

// --ranks-per-node makes this machine look like several, which exchange messages instead of sharing memory.
TEST_F(Distributed, SeveralMachinesTrainLikeOneProcess) {
    struct Machines {
        std::string precision, ranks_per_node;
        int processes;
    };
    for (const Machines& m : {Machines{"fp32", "2", 4}, Machines{"bf16", "2", 4}, Machines{"fp16", "2", 4},
                              Machines{"fp32", "1", 3}, Machines{"fp32", "2", 6}, Machines{"bf16", "3", 6}}) {
        SCOPED_TRACE(m.precision + ", processes per machine: " + m.ranks_per_node);
        const Words options = args("-x 10 -v 0 -n 10 --precision", m.precision, "-l", learning_rate);
        const std::vector<double> one = train(1, with(options, {"-b", "12"}), "one");
        const Words batch = {"-b", std::to_string(12 / m.processes)},
                    nodes = {"--ranks-per-node", m.ranks_per_node};
        for (const char* output : {"a", "b"}) {
            const std::string result =
                output_of(start(m.processes, with(with(options, batch), nodes), output));
            const std::vector<double> several = printed_losses(result);
            expect_near(several, one, loss_tolerance(m.precision));
            expect_near(data.losses(folder(output)), several, log_tolerance);
            const int machines = m.processes / std::stoi(m.ranks_per_node);
            EXPECT_TRUE(
                contains(result, format_string("processes: %d on %d machines\n", m.processes, machines)));
        }
        EXPECT_TRUE(model_after("a", 10) == model_after("b", 10));
        EXPECT_TRUE(moments_after("a", 10) == moments_after("b", 10));
    }
}

// Between machines of one process each, the rows of wte that a batch has travel by themselves. Sums and
// weights are those of one machine all the same, also where a shard of wte ends within a row, and with
// batches so large that wte travels as a whole.
TEST_F(Distributed, MachinesAreBitIdenticalToProcesses) {
    const std::string model = "heads=2,channels=24,max_seq_len=32,vocab=";
    for (const std::string& options :
         {"--precision fp32 -e " + five_layers, "--precision bf16 -b 8 -d 408 -e " + five_layers,
          "--precision bf16 -e custom:layers=1," + model + "67",
          "--precision bf16 -e custom:layers=3," + model + "2501",
          "--precision fp32 --optimizer muon -e custom:layers=4," + model + "2501"}) {
        SCOPED_TRACE(options);
        const Words run = with(words_of("-d 204 -v 2 -s 3 -g 4 -n 4 -l " + learning_rate), words_of(options));
        for (const auto& [output, machines] : {std::pair{"one", "3"}, {"machines", "1"}})
            for (const char* until : {"4", "8"})
                train(3, with(run, {"--ranks-per-node", machines, "-y", "1", "-x", until}), output);
        for (const int step : {4, 8}) {
            EXPECT_TRUE(model_after("one", step) == model_after("machines", step)) << step;
            if (contains(options, "muon")) continue;  // which has fewer moments
            EXPECT_TRUE(moments_after("one", step) == moments_after("machines", step)) << step;
        }
        for (const char* output : {"one", "machines"}) std::filesystem::remove_all(folder(output));
    }
}

// A machine rounds its sums before it sends them. With several processes each, the sums of machines are those
// of one machine if no rounding is lost: one process of each machine has targets that count, another one in
// each. Updates are skipped by a device in fp16, and by the host. Shards of wte end within rows.
TEST_F(Distributed, MachinesOfSeveralProcessesAreBitIdenticalToOne) {
    struct Machines {
        std::string device, options, skips;
        int processes, per_machine;
    };
    const std::string overflow = "is not finite; the update was skipped",
                      outliers = "is an outlier; the update was skipped";
    std::vector<Machines> all = {
        {"cpu", "--precision fp32 -l 0.01", "", 4, 2},
        {"cpu", "--precision bf16 --optimizer muon -l 0.01", "", 6, 2},
        {"cpu", "--precision fp16 --optimizer muon -l 1", overflow, 6, 3},
        {"cpu", "--precision fp32 -sg 0.5 -l 1 -u 140", outliers, 4, 2},
    };
    if (device() != "none") {
        all.push_back({device(), "--precision fp32 --optimizer muon -l 0.01", "", 4, 2});
        all.push_back({device(), "--precision bf16 -l 0.01", "", 3, 1});
        all.push_back({device(), "--precision fp16 -l 1", overflow, 4, 2});
    }
    const std::vector<uint16_t> tokens = read_shard(data.val);
    for (const Machines& m : all) {
        SCOPED_TRACE(m.device + " " + m.options);
        std::vector<bool> targets;
        for (size_t i = 0; i < tokens.size(); i++) {
            const int rank = int(i / 17) % m.processes, machine = rank / m.per_machine;
            targets.push_back(i % 17 && rank % m.per_machine == machine % m.per_machine);
        }
        TokenShardWriter writer(data.val);
        writer.add(tokens.data(), tokens.size(), targets);
        writer.finish();
        const int steps = m.skips == outliers ? 140 : 8;  // outliers are known after 128
        const std::string tokens_per_step = std::to_string(2 * 17 * m.processes),
                          last = std::to_string(steps);
        const Words run =
            with(with(words_of("-b 1 -v 0 --grad-clip 0 -e "
                               "custom:layers=5,heads=2,channels=24,max_seq_len=32,vocab=139"),
                      args("--device", m.device, "-d", tokens_per_step, "-x", last, "-n", last)),
                 words_of((m.per_machine > 1 ? "-a 1 " : "") + m.options));
        for (const int per_machine : {m.processes, m.per_machine}) {
            const std::string output = per_machine == m.processes ? "one" : "machines";
            const std::string out = output_of(
                start(m.processes, with(run, {"--ranks-per-node", std::to_string(per_machine)}), output));
            EXPECT_TRUE(contains(out, m.skips));
            const std::vector<double> losses = printed_losses(out);
            ASSERT_EQ(losses.size(), size_t(steps));
            EXPECT_TRUE(std::isfinite(losses.back()));
            if (m.skips.empty()) {
                EXPECT_LT(losses.back(), 0.98 * losses[0]) << "the model learns nothing";
            }
        }
        EXPECT_TRUE(model_after("one", steps) == model_after("machines", steps));
        if (!contains(m.options, "muon")) {  // which has fewer moments
            EXPECT_TRUE(moments_after("one", steps) == moments_after("machines", steps));
        }
        for (const char* output : {"one", "machines"}) std::filesystem::remove_all(folder(output));
    }
}

TEST_F(Distributed, ResumesWithAnotherNumberOfProcesses) {
    const std::vector<double> straight = train(1, {}, "straight");
    std::vector<double> resumed;
    int at = 0;
    for (const auto& [processes, until] : {std::pair{1, 5}, {3, 10}, {2, 15}, {1, STEPS}}) {
        const std::string result =
            output_of(start(processes, {"-y", "1", "-n", "5", "-x", std::to_string(until)}, "resumed"));
        if (at > 0) {
            EXPECT_TRUE(contains(result, format_string("at step %d", at)));
        }
        at = until;
        for (const double loss : printed_losses(result)) resumed.push_back(loss);
    }
    expect_near(resumed, straight, loss_tolerance("fp32"));
    expect_near(data.losses(folder("resumed")), resumed, log_tolerance);
    const std::string note = "note: a step has %d tokens, and had %d; -d keeps them the same";
    const ProgramResult halved =
        run_program(trainer(SEQUENCES / 2, "resumed", {"-y", "1", "-x", std::to_string(STEPS + 1)}));
    EXPECT_TRUE(contains(halved.out, format_string(note.c_str(), SEQUENCES / 2 * 17, SEQUENCES * 17)))
        << halved.err;
}

TEST_F(Distributed, ThePlanCountsAllProcesses) {
    const auto plan = [&](int processes, const Words& options) {
        return start(processes, with({"--dry-run=memory", "-i", "", "-j", ""}, options), "planned");
    };
    const std::string two = output_of(plan(2, {"-g", "5", "-s", "10"}));
    EXPECT_TRUE(contains(two, ", exchange 0."));
    EXPECT_TRUE(contains(two, ", samples 0."));
    // between machines, also what the sums of the others come to: half of the parameters from each of two
    const auto exchange = [&](const char* ranks_per_node) {
        const std::string planned = output_of(plan(2, {"-e", "d6", "--ranks-per-node", ranks_per_node}));
        const size_t at = planned.find(", exchange ");
        return at == std::string::npos ? NAN : std::stod(planned.substr(at + 11));
    };
    EXPECT_NEAR(exchange("1") / exchange("2"), 2, 0.02);
    // A third of the memory for the activations, 460 MiB per sequence, fits in one process, and not in six.
    const std::string free = two.substr(two.find("free memory on this machine: ") + 29);
    const int third = int(std::stod(free) * 1024 / 3);  // MiB
    ASSERT_GT(third, 1000) << two;
    const Words large = {"-e", "d12", "-t", "1024", "-b", std::to_string(third / 460)};
    expect_ok(plan(1, large));
    const ProgramResult six = plan(6, large);
    EXPECT_EQ(six.status, 1) << six.out;
    const size_t at = six.err.find("out of memory: ");
    EXPECT_NE(six.err.find(" in each of 6 processes", at), std::string::npos) << six.err;
    EXPECT_EQ(six.err.find("out of memory: ", at + 1), std::string::npos) << six.err;
    expect_ok(plan(6, {"-b", "auto", "-d", std::to_string(17 * 6 * 1024)}), "note: -b auto is -b ");
}

TEST_F(Distributed, DryRunTimesTheStepsOfEachProcess) {
    expect_ok(start(3, {"--dry-run"}, "dry"), "s per step");
    // steps of one micro-batch and of two, between machines
    expect_ok(start(3, words_of("--dry-run --ranks-per-node 1 -d 204"), "dry"), "s per step");
}

TEST_F(Distributed, OnlyRankZeroPrints) {
    const std::string result = output_of(start(3, {}, "out"));
    size_t plans = 0;
    for (size_t at = 0; (at = result.find("tokens per step", at)) != std::string::npos; at++) plans++;
    EXPECT_EQ(plans, 1u) << result;
    EXPECT_TRUE(contains(result, "processes: 3"));
    EXPECT_EQ(printed_losses(result).size(), size_t(STEPS)) << result;
    EXPECT_EQ(result.find('\033'), std::string::npos) << "a status line in a pipe: " << result;
}

// mpirun binds two processes to a core each, which leaves the others idle.
TEST_F(Distributed, SaysThatProcessesAreBoundToFewCores) {
    const auto bound = [&](const std::string& to, const Words& command) {
        return run_program(with(with(launcher, {"--bind-to", to, "-np", "1"}), command)).out;
    };
    const Words plan = {program, "-e", tiny, "--device", "cpu", "--dry-run=memory", "-t", "17"};
    const int cores = std::stoi(bound("core", {"nproc"}));
    const std::string line =
        format_string("the launcher gives each process %d of this machine's %d cores", cores, online_cpus());
    EXPECT_EQ(bound("core", plan).find(line) != std::string::npos, cores <= online_cpus() / 2);
    EXPECT_FALSE(contains(bound("none", plan), "the launcher gives"));
    EXPECT_FALSE(contains(bound("core", with(plan, {"--threads", "1"})), "the launcher gives"));
}

// The signal goes to the process that was started last, which is rank 1.
TEST_F(Distributed, SignalToOneRankSavesAndEndsAll) {
    const ProgramResult result =
        start(2, {"-x", "1000000", "-n", "1000000"}, "stopped",
              with_script(R"(after_step_9; kill -TERM $(pgrep -n -f "^$PROGRAM .*$OUTPUT"))", "stopped"));
    EXPECT_NE(result.status, 0);
    EXPECT_TRUE(contains(result.out, "stopped by SIGTERM")) << result.err;
    EXPECT_TRUE(contains(result.out, "wrote checkpoint")) << result.err;
}

TEST_F(Distributed, RefusesOptionsThatDisagreeWithTheJob) {
    const ProgramResult odd_batch = start(3, {"-d", "34"}, "refused");
    EXPECT_NE(odd_batch.status, 0);
    EXPECT_TRUE(contains(odd_batch.err, "B*T*processes"));
}

// Every process verifies what it reads; damage that one of them finds makes all resume the checkpoint before,
// bit-identically with the same processes.
TEST_F(Distributed, DamagedCheckpointIsNotResumed) {
    const Words options = {"-x", "8", "-n", "4", "--dropout", "0.2"};
    train(3, options, "whole");
    for (const std::string& name :
         {std::string("model_00000008.bin"), std::string("state_00000008_00002.bin")})
        for (const int processes : {2, 3}) {
            SCOPED_TRACE(name + format_string(", %d processes", processes));
            std::filesystem::remove_all(folder("out"));
            std::filesystem::copy(folder("whole"), folder("out"), std::filesystem::copy_options::recursive);
            std::string bytes = read_whole_file(folder("out") + "/" + name);
            bytes[bytes.size() / 2] ^= 1;
            write_whole_file(folder("out") + "/" + name, {bytes});
            expect_ok(start(processes, with(options, {"-y", "1"}), "out"),
                      "the checkpoint of step 8 is broken: ", name + " is damaged", "at step 4");
            if (processes == 3) {
                EXPECT_TRUE(model_after("whole", 8) == model_after("out", 8));
                EXPECT_TRUE(moments_after("whole", 8) == moments_after("out", 8));
            }
        }
}

// The bytes that each process of a job reads, by the system's count, which includes the program's libraries.
static std::vector<double> bytes_read(const ProgramResult& result) {
    std::vector<double> bytes;
    for (size_t at = 0; (at = result.err.find("rchar: ", at)) != std::string::npos; at += 7)
        bytes.push_back(std::stod(result.err.substr(at + 7)));
    return bytes;
}

// A resumed process reads its share of the optimizer's state; one of each machine reads the model.
TEST_F(Distributed, ResumeReadsEachByteOnce) {
    const int processes = 4;
    const Words options =
        args("-e custom:layers=5,heads=4,channels=256,max_seq_len=32,vocab=67 -t 16 -b 1 -v 0 -x 1 -n 1 -j",
             std::string());
    const Member counted = {{}, {"bash", "-c", R"("$@"; grep rchar /proc/$$/io >&2)", "bash"}};
    const auto job = [&](const Words& more) {
        return start_each(std::vector(processes, counted), with(options, more), "out");
    };
    const ProgramResult fresh = job({"--ranks-per-node", "2"});
    ASSERT_EQ(fresh.status, 0) << fresh.err;
    const double model = double(model_after("out", 1).size()),
                 share = double(read_whole_file(optimizer_part_path(folder("out"), 1, 1)).size());
    const ProgramResult resumed = job({"--ranks-per-node", "2", "-y", "1"});
    ASSERT_EQ(resumed.status, 0) << resumed.err;
    EXPECT_TRUE(contains(resumed.out, "at step 1"));
    std::vector<double> before = bytes_read(fresh), after = bytes_read(resumed);
    ASSERT_EQ(int(before.size()), processes) << fresh.err;
    ASSERT_EQ(int(after.size()), processes) << resumed.err;
    std::ranges::sort(before);
    std::ranges::sort(after);
    for (int i = 0; i < processes; i++) {
        const double most = share + (i >= 2 ? model : 0);  // two processes read the model
        printf("process %d reads %.2f of its share\n", i, (after[i] - before[i]) / most);
        EXPECT_LE(after[i] - before[i], 1.2 * most);
        EXPECT_GE(after[i] - before[i], 0.9 * most);
    }
}

// Both processes have the same options, and see other contents under one path, which leads to the folder that
// each of them works in.
TEST_F(Distributed, RefusesProcessesThatSeeOtherFiles) {
    const std::string first = folder("first"), second = folder("second"), seen = "/proc/self/cwd/";
    for (const std::string& where : {first, second}) {
        std::filesystem::create_directory(where);
        write_tokens(where + "/train.bin", 3000, 67);
        write_tokens(where + "/val.bin", 1000, 67);
        write_model(where + "/model.bin", parse_descriptor(tiny),
                    [](int, size_t, float* values, size_t n) { std::fill_n(values, n, 0.01f); });
    }
    const std::vector<std::pair<std::string, std::string>> differences = {
        {"train.bin", "training data"}, {"val.bin", "validation data"}, {"model.bin", "weights"}};
    for (const auto& [name, what] : differences) {
        std::string bytes = read_whole_file(second + "/" + name);
        const std::string before = bytes;
        bytes[bytes.size() - 4] ^= 1;
        write_whole_file(second + "/" + name, {bytes});
        const Words files = args("-i", seen + "train.bin", "-j", seen + "val.bin", "-e", seen + "model.bin",
                                 "-x 3 --hellaswag-file /none");
        const ProgramResult result =
            start_each({{{}, {"-wdir", first}}, {{}, {"-wdir", second}}}, files, seen + "out");
        EXPECT_NE(result.status, 0) << name;
        EXPECT_TRUE(contains(result.err, "this process has '" + what));
        write_whole_file(second + "/" + name, {before});
    }
}

// Both resume the same step with the same weights, and another state.
TEST_F(Distributed, RefusesProcessesThatSeeOtherCheckpoints) {
    const std::string first = folder("first"), second = folder("second"), seen = "/proc/self/cwd/";
    std::filesystem::create_directory(first);
    write_tokens(first + "/train.bin", 3000, 67);
    const auto job = [&](const Words& options, const std::string& other) {
        const Words run = {"-i", seen + "train.bin", "-j", "", "-x", "3", "-v", "0", "-n", "2",
                           "-o", seen + "run"};
        return start_each({{{}, {"-wdir", first}}, {{}, {"-wdir", other}}}, with(run, options), "");
    };
    expect_ok(job({}, first));
    std::filesystem::copy(first, second, std::filesystem::copy_options::recursive);
    const std::string state = second + "/run/run_00000003.json";
    write_whole_file(state, {read_whole_file(state), "\n"});
    const ProgramResult result = job({"-y", "1", "-x", "5"}, second);
    EXPECT_NE(result.status, 0);
    EXPECT_TRUE(contains(result.err, "this process has 'a checkpoint with the checksum"));
    expect_ok(job({"-y", "1", "-x", "5"}, first));
}

// One process of two gets other options or data, by mpirun's colon.
TEST_F(Distributed, RefusesProcessesThatDiffer) {
    const std::string other = data / "other.bin";
    write_tokens(other, 3000, 67);
    struct Difference {
        Words first, second;
        std::string named;
    };
    for (const Difference& d :
         {Difference{{"-l", "0.001"}, {"-l", "0.002"}, "learning-rate"},
          Difference{{"-i", data.train}, {"-i", other}, "other.bin"}, Difference{{}, {"--help"}, "--help"},
          Difference{{}, {"--dry-run"}, "--dry-run"}, Difference{{"--export", "hf", "x"}, {}, "--export"},
          Difference{{}, {"-y", "1"}, "--resume"}}) {
        const ProgramResult result = start_each({{d.first}, {d.second}}, {"-x", "3"}, "out");
        EXPECT_NE(result.status, 0);
        EXPECT_TRUE(contains(result.err, d.named));
        EXPECT_TRUE(contains(result.err, "rank 0 has"));
    }
}
