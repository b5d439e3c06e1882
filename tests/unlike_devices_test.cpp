// Jobs whose processes have unlike devices: each computes as many of a step's sequences as it is fast, and
// they train like one process with all of them.
#include <omp.h>

#include "llmc/launchpad/device.h"
#include "llmc/run/division.h"
#include "tests/distributed_run.h"
#include "tests/terminal.h"

struct UnlikeDevices : Distributed {
    // Losses of the steps and validations of a job, whose line about the division has this text.
    std::vector<double> train_each(const std::vector<Member>& own, const Words& options,
                                   const std::string& output, const std::string& division) {
        const std::string result = output_of(start_each(own, options, output));
        EXPECT_TRUE(contains(result, "division of a step: " + division));
        return with_validations(result);
    }
    std::vector<double> train_one(int sequences, const Words& options) {
        const std::string result = output_of(run_program(trainer(sequences, "one", options)));
        const std::vector<double> losses = with_validations(result);
        EXPECT_LT(losses[size_t(STEPS) - 1], 0.98 * losses[0]) << "the model learns nothing";
        return losses;
    }
    static std::vector<double> with_validations(const std::string& out) {
        std::vector<double> all = printed_losses(out);
        for (size_t at = 0; (at = out.find("val loss ", at)) != std::string::npos; at += 9)
            all.push_back(std::stod(out.substr(at + 9)));
        return all;
    }
    static void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
        ASSERT_EQ(got.size(), want.size());
        ASSERT_GT(got.size(), size_t(STEPS));
        for (size_t i = 0; i < got.size(); i++) EXPECT_NEAR(got[i], want[i], 1e-4) << "loss " << i;
    }
    static Member on(const std::string& where, const std::string& share) {
        return {{"--device", where, "--share", share}};
    }
};

static const Words rate = {"-l", "0.005"};
static Words step_of(int sequences) { return with(rate, {"-d", std::to_string(17 * sequences)}); }

TEST_F(UnlikeDevices, TrainLikeOneProcess) {
    for (const bool masked : {false, true}) {
        if (masked) mask_data();
        // 11 sequences are no multiple of anything; the first process has three micro-batches, the last one
        const std::vector<double> eleven = train_one(11, step_of(11));
        expect_near(
            train_each({on("cpu", "5"), on("cpu", "2"), on("cpu", "1")}, with(step_of(11), {"-b", "3"}),
                       "three", "7 sequences on cpu, 1 thread, --share 5 (micro-batches of 3); 3 on"),
            eleven);
        const std::vector<double> twelve = train_one(12, step_of(12));
        expect_near(train_each({on("cpu", "3"), on("cpu", "1")}, step_of(12), "two",
                               "9 sequences on cpu, 1 thread, --share 3 (micro-batches of 3); 3 on"),
                    twelve);
    }
}

// In one machine and between machines, with a device whose commands run while the host continues, and with
// one that cannot import host memory.
TEST_F(UnlikeDevices, CpuAndDeviceTrainLikeOneProcess) {
    if (device() == "none") GTEST_SKIP() << "LLMC_TEST_DEVICE=none: no Vulkan device is to be used";
    const std::vector<double> one = train_one(7, step_of(7));
    const std::vector<Member> two = {on("cpu", "4"), on(device(), "3")};
    for (const char* ranks_per_node : {"2", "1"})
        expect_near(
            train_each(two, with(step_of(7), {"--ranks-per-node", ranks_per_node}), "two", "4 sequences"),
            one);
    expect_near(train_each({on(device(), "1"), on("cpu", "4"), on("cpu", "1"), on(device(), "1")},
                           with(step_of(7), {"--ranks-per-node", "2"}), "four", "1 sequences"),
                one);
    std::vector<Member> one_imports_nothing = two;
    one_imports_nothing[1].wrapper = {"env",
                                      "VK_ADD_LAYER_PATH=" BINARY_DIR "/vulkan_device_layer",
                                      "VK_INSTANCE_LAYERS=VK_LAYER_LLMC_device",
                                      "VULKAN_DEVICE=no_import",
                                      "LAUNCHPAD_VALIDATION=0",
                                      "XDG_CACHE_HOME=" + (data / "cache")};
    expect_near(train_each(one_imports_nothing, step_of(7), "copied", "4 sequences"), one);
}

// Two devices with a share of the cores each, 3 : 1 where there are four.
TEST_F(UnlikeDevices, SpeedsAreMeasured) {
    if (device() == "none") GTEST_SKIP() << "LLMC_TEST_DEVICE=none: no Vulkan device is to be used";
    const int cores = omp_get_num_procs();
    if (cores < 2) GTEST_SKIP() << "one core cannot be shared";
    const std::string most = std::to_string(std::min(cores, 4) - 2),
                      last = std::to_string(std::min(cores, 4) - 1);
    const std::vector<Member> own = {
        {{"--device", device()},
         {"taskset", "-c", "0-" + (cores < 4 ? last : most), "env", "LP_NUM_THREADS=3"}},
        {{"--device", device()}, {"taskset", "-c", last, "env", "LP_NUM_THREADS=1"}}};
    expect_near(train_each(own, step_of(12), "shared", ""), train_one(12, step_of(12)));
    const std::string run = read_whole_file(run_path(folder("shared"), STEPS));
    EXPECT_TRUE(contains(run, "\"division\""));
}

TEST_F(UnlikeDevices, AKilledRunResumesBitIdentically) {
    const std::string script = R"(
        until [ -e "$OUTPUT/DONE_00000020" ]; do sleep 0.01; done
        kill -KILL $(pgrep -f "^$PROGRAM .*$OUTPUT") $(pgrep -f "^(mpirun|prterun) .*$OUTPUT"))";
    const std::vector<Member> own = {on("cpu", "3"), on("cpu", "1")};
    const Words options = with(step_of(7), args("--dropout 0.2 -x 1000 -n 20 -nk 2 -v 0"));
    expect_ok(start_each(own, options, "straight"));
    const ProgramResult killed = start_each(own, options, "killed", with_script(script, "killed"));
    EXPECT_NE(killed.status, 0);
    expect_ok(start_each(own, with(options, {"-y", "1"}), "killed"), " at step ");
    EXPECT_TRUE(model_after("straight", 1000) == model_after("killed", 1000));
    EXPECT_TRUE(moments_after("straight", 1000) == moments_after("killed", 1000));
}

// A step has the same sequences, whoever computes them.
TEST_F(UnlikeDevices, ResumesWithAnotherDivision) {
    const std::vector<double> straight = train_one(7, step_of(7));
    const Words options = with(step_of(7), {"-y", "1", "-n", "5", "-v", "0"});
    const std::vector<std::vector<Member>> jobs = {{on("cpu", "3"), on("cpu", "1")},
                                                   {on("cpu", "1"), on("cpu", "3")},
                                                   {on("cpu", "2"), on("cpu", "1"), on("cpu", "1")}};
    std::vector<double> resumed;
    int until = 0;
    for (const auto& own : jobs) {
        const std::string result =
            output_of(start_each(own, with(options, {"-x", std::to_string(until += 5)}), "resumed"));
        EXPECT_EQ(result.find("note: the division of a step changes") != std::string::npos, until > 5);
        for (const double loss : printed_losses(result)) resumed.push_back(loss);
    }
    const ProgramResult alone = run_program(trainer(7, "resumed", with(options, {"-x", "20"})));
    EXPECT_TRUE(contains(alone.out, "not divided by speed any more"));
    for (const double loss : printed_losses(alone.out)) resumed.push_back(loss);
    ASSERT_EQ(resumed.size(), size_t(STEPS));
    for (size_t i = 0; i < resumed.size(); i++) EXPECT_NEAR(resumed[i], straight[i], 1e-5) << "step " << i;
}

// A step of a text has the sequences of all -b; where some do not say it, one size is chosen for all.
TEST_F(UnlikeDevices, EachMayHaveABatchOfItsOwn) {
    std::string lines;
    for (int i = 0; lines.size() < 100000; i++) lines += "line " + std::to_string(i) + "\n\n";
    write_whole_file(data / "text.txt", {lines});
    const std::string one =
        "-np 1 " + program + " --text " + (data / "text.txt") + " -o " + folder("text") +
        " -x 2 -t 16 -s 0 --device cpu --threads 1 -e custom:layers=1,heads=2,channels=16 ";
    const auto run = [&](const std::string& first, const std::string& second) {
        return output_of(run_program(with(launcher, words_of(one + first + " : " + one + second))));
    };
    EXPECT_TRUE(contains(run("-b 2", "-b 6"), " --total-batch-size 128 "));
    EXPECT_TRUE(contains(run("-b 6", "-b 2"), " --total-batch-size 128 "));
    EXPECT_TRUE(contains(run("", "-b 2"), " --total-batch-size 2048 "));
}

TEST_F(UnlikeDevices, ASignalEndsAllAfterTheStep) {
    const ProgramResult result = start_each(
        {on("cpu", "3"), on("cpu", "1")}, with(step_of(12), args("-x 1000000 -b 2")), "stopped",
        with_script(R"(after_step_9; kill -TERM $(pgrep -n -f "^$PROGRAM .*$OUTPUT"))", "stopped"));
    EXPECT_NE(result.status, 0);
    EXPECT_TRUE(contains(result.out, "stopped by SIGTERM, which mpirun sends for Ctrl-C, too; "))
        << result.err;
    EXPECT_TRUE(contains(result.out, "wrote checkpoint")) << result.err;
}

TEST_F(UnlikeDevices, RefusesStepsThatCannotBeDivided) {
    struct Refused {
        std::vector<Member> own;
        Words options;
        std::string line;
    };
    for (const Refused& r :
         {Refused{{on("cpu", "3"), on("cpu", "1")}, {"-d", "35"}, "-d 35 is not a multiple of T = 17"},
          Refused{{on("cpu", "3"), on("cpu", "1")},
                  {"-d", "17"},
                  "-d 17 is 1 sequence of 17 tokens for 2 processes"},
          Refused{{on("cpu", "3"), {{"--device", "cpu"}}}, {}, "--share is given to 1 of 2 processes"},
          Refused{{on("cpu", "3"), on("cpu", "1")},
                  {"--devices", "0,cpu"},
                  "--devices starts the processes itself"}}) {
        const ProgramResult result = start_each(r.own, r.options, "refused");
        EXPECT_NE(result.status, 0) << r.line;
        EXPECT_TRUE(contains(result.err, r.line));
    }
}

// Without -d, a step has a micro-batch of each process.
TEST_F(UnlikeDevices, MicroBatchesMayDiffer) {
    const std::string result = output_of(start_each({{{"-b", "5"}}, {{"-b", "2"}}}, rate, "unlike"));
    EXPECT_TRUE(contains(result, "\nbatch: 7 x 17 = 119 tokens per step"));
    expect_near(with_validations(result), train_one(7, step_of(7)));
}

TEST_F(UnlikeDevices, EqualProcessesAreNotDivided) {
    const std::string result = output_of(start(2, {"-n", "20"}, "equal"));
    EXPECT_FALSE(contains(result, "division"));
    EXPECT_FALSE(contains(read_whole_file(run_path(folder("equal"), STEPS)), "division"));
}

// The first process, which prints, runs a twentieth of the time, also where other programs keep the script
// from stopping it again soon: the others would wait for its sequence.
static const Words slowly = {"bash", "-c", R"(
    "$0" "$@" & p=$!
    (while begin=${EPOCHREALTIME//[.,]/}; kill -CONT $p; do
        sleep 0.02; kill -STOP $p; sleep $((20 * (${EPOCHREALTIME//[.,]/} - begin)))e-6
    done) 2>/dev/null &
    wait $p)"};

// Time per step that is predicted for a text, over the time that it takes.
static double predicted_over_measured(const ProgramResult& result) {
    EXPECT_EQ(result.status, 0) << result.err << result.out;
    const auto number_after = [&](const char* text, size_t until = std::string::npos) {
        const size_t at = result.out.rfind(text, until);
        return at == std::string::npos ? NAN : std::stod(result.out.substr(at + strlen(text)));
    };
    return number_after(" tokens: ", result.out.rfind(" ms per step")) /
           number_after("total average iteration time: ");
}

// A process that times its steps alone knows neither the others' speed, nor their exchange, nor who is left
// out.
TEST_F(UnlikeDevices, StepsOfATextAreTimedInAllProcesses) {
    std::string text;
    for (int i = 0; i < 3000; i++) text += format_string("%d is odd. ", 2 * i * i + 1);
    write_whole_file(folder("text"), {text});
    const Words train_on_text = with({program, "--text", folder("text"), "-o", folder("timed")},
                                     words_of("-e custom:layers=2,heads=2,channels=32 -t 32 -s 0 -v 0 "
                                              "--threads 1 --device cpu --minutes 0.08"));
    const auto train_both = [&](const Member& first, const Member& second) {
        const Words one = with(with(with({"-np", "1"}, first.wrapper), train_on_text), first.options);
        const Words two = with(with(with({":", "-np", "1"}, second.wrapper), train_on_text), second.options);
        return run_program(with(with(launcher, one), two));
    };
    for (const std::string ranks : {"2", "1", "left out"}) {
        const Words options = ranks == "left out" ? Words() : Words{"--ranks-per-node", ranks};
        const ProgramResult result = ranks == "left out" ? train_both({{"-b", "3"}, slowly}, {{"-b", "6"}})
                                                         : train_both({options}, {options, slowly});
        const double ratio = predicted_over_measured(result);
        EXPECT_GT(ratio, 0.1) << ranks << result.out;  // alone, a process is off by 20
        EXPECT_LT(ratio, 10) << ranks << result.out;
        EXPECT_EQ(result.out.find("left out") != std::string::npos, ranks == "left out") << result.out;
    }
}

// Standard output is a socket there, which cannot be opened a second time.
static const Words into_socket = {"python3", "-c", R"(
import socket, subprocess, sys
ours, theirs = socket.socketpair()
program = subprocess.Popen(sys.argv[1:], stdout=theirs)
theirs.close()
for line in ours.makefile(): print(line, end="", flush=True)
sys.exit(program.wait()))"};

TEST_F(UnlikeDevices, WhoCostsMoreThanHeBringsIsLeftOut) {
    const bool has_python = program_succeeds({"python3", "--version"});
    const std::string result =
        output_of(start_each({{{"-b", "3"}, slowly}, {{"-b", "auto"}, has_python ? into_socket : Words()}},
                             with(step_of(7), {"-n", "20"}), "left"));
    EXPECT_TRUE(
        contains(result, "division of a step: 0 sequences on cpu, 1 thread, which is left out; 7 on"));
    expect_near(with_validations(result), train_one(7, step_of(7)));
    EXPECT_FALSE(file_exists(folder("left") + format_string("/state_%08d_00001.bin", STEPS)));
}

// It computes two of 40 sequences as fast as the other one the rest, but its update and its part of the
// exchange take twenty times as long.
TEST_F(UnlikeDevices, WhoseExchangeCostsMoreThanHeBringsIsLeftOut) {
    const std::string result = output_of(
        start_each({{{"-b", "40"}}, {{"-b", "10"}, slowly}}, with(step_of(40), {"-v", "0"}), "left"));
    EXPECT_TRUE(contains(result,
                         "division of a step: 40 sequences on cpu, 1 thread (micro-batches of 40); 0 "
                         "on cpu, 1 thread, which is left out"));
}

// A launcher may signal all processes; then the one that trains gets the signal twice.
TEST_F(UnlikeDevices, SignalsToWhoIsLeftOutAreForTheOthers) {
    for (const std::string whom : {".* -b 3", ""}) {
        const std::string name = whom.empty() ? "all" : "left",
                          script =
                              R"(after_step_9; kill -TERM $(pgrep -f "^$PROGRAM .*$OUTPUT)" + whom + "\")";
        const ProgramResult result =
            start_each({{{"-b", "3"}, slowly}, {{"-b", "7"}}}, with(step_of(7), {"-x", "1000000"}), name,
                       with_script(script, name));
        EXPECT_TRUE(contains(result.out, "note: 1 of 2 processes trains, and this one has 1 CPU thread"));
        EXPECT_TRUE(contains(result.out, whom.empty() ? "stopped by SIGTERM" : "stopped by SIGUSR2"))
            << result.err;
        EXPECT_TRUE(contains(result.out, "wrote checkpoint")) << result.err;
    }
}

TEST_F(UnlikeDevices, TheDivisionFollowsSpeeds) {
    const std::string script = R"(
        after_step_9
        victim=$(pgrep -n -f "^$PROGRAM .*$OUTPUT")
        division() { grep -h -o '"sequences": [0-9]*' "$OUTPUT"/run_*.json 2>/dev/null; }
        until before=$(division); do sleep 0.1; done
        for i in $(seq 300); do
            kill -STOP $victim; sleep 0.1; kill -CONT $victim; sleep 0.01
            if now=$(division) && [ "$now" != "$before" ]; then break; fi
        done
        kill -TERM $victim)";
    // between machines, where nobody is left out
    const ProgramResult result =
        start_each({{{"-b", "6"}}, {{"-b", "7"}}},
                   with(step_of(12), args("-x 1000000 -n 20 -nk 1 -v 0 --ranks-per-node 1")), "slower",
                   with_script(script, "slower"));
    EXPECT_TRUE(contains(result.out, "note: speeds have changed; division of a step: "));
    EXPECT_TRUE(contains(result.out, "stopped by SIGTERM")) << result.err;
}

struct Devices : UnlikeDevices {
    Words command(const std::string& devices, const Words& more) {
        Words all = trainer(4, "devices", with(step_of(8), {"--devices", devices}));
        all.erase(std::find(all.begin(), all.end(), "--device"),
                  std::find(all.begin(), all.end(), "cpu") + 1);
        return with({"env", WITHOUT_LEAK_CHECK}, with(all, more));
    }
    ProgramResult run(const std::string& devices, const Words& more, const SendSignal& signal = {}) {
        return run_program(command(devices, more), signal);
    }
    // A shell's background process ignores SIGINT, unless it says otherwise.
    ProgramResult run_with_script(const std::string& script, const Words& more) {
        return run_program(with(with_script(script, "devices", "env --default-signal=INT \"$@\""),
                                command("cpu,cpu", more)));
    }
};

TEST_F(Devices, StartsThem) {
    expect_ok(run("cpu,cpu", {"--share", "1,1"}), "processes: 2");
    const std::string one = output_of(run("cpu", {}));
    EXPECT_FALSE(contains(one, "processes"));
    const ProgramResult shares = run("cpu,cpu", {"--share", "3,1"});
    EXPECT_TRUE(contains(shares.out, "division of a step: 6 sequences on cpu, 1 thread, --share 3 "))
        << shares.err;
}

TEST_F(Devices, AllAreThoseThatAreNotSoftware) {
    const ProgramResult all = run("all", {"-x", "1"});
    EXPECT_EQ(all.status, 0) << all.err;
    for (const DeviceInfo& device : list_devices())
        EXPECT_NE(device.is_gpu(),
                  contains(all.out, "--devices all leaves out device " + std::to_string(device.index) + " (" +
                                        device.name + "): it is software"));
}

TEST_F(Devices, AreRefusedBeforeAnythingStarts) {
    struct Refused {
        std::string devices;
        Words more;
        std::string line;
    };
    for (const Refused& r :
         {Refused{"cpu,cpu", {"--device", "cpu"}, "leave out --device"},
          Refused{"cpu,cpu", {"--devices=cpu"}, "--devices is given twice"},
          Refused{"cpu,all", {}, "--devices: all is no single device"},
          Refused{"auto,cpu", {}, "--devices: auto is no single device"},
          Refused{"cpu,99", {}, "--devices: no device '99'"},
          Refused{"cpu,cpu", {"--hellaswag-file", ":"}, "takes the argument ':' for itself"},
          Refused{"cpu,cpu", {"--share", "3,2,1"}, "--share: 3 numbers for 2 devices"},
          Refused{"cpu,cpu", {"--share", "3"}, "--share: 1 number for 2 devices"},
          Refused{"cpu,cpu", {"--share", "0,1"}, "--share: 0 is no part of a step"}}) {
        const ProgramResult refused = run(r.devices, r.more);
        expect_refusal(refused, r.line);
        EXPECT_FALSE(contains(refused.err, "rank"));
    }
}

TEST_F(Devices, ShowOneStatusLine) {
    std::vector<std::string> all = command("cpu,cpu", {});
    all[0] = "/usr/bin/env";
    const std::string shown = shown_on_terminal(all, "xterm");
    EXPECT_NE(shown.find("] 20/20 ETA"), std::string::npos) << shown;
    EXPECT_EQ(shown.find("step   "), std::string::npos) << shown;
}

// A launcher that gets a signal while it ends a job crashes.
TEST_F(Devices, EndWithTheLineOfAnError) {
    for (int i = 0; i < 10; i++) {
        const ProgramResult refused = run("cpu,cpu", {"-d", "35"});
        ASSERT_EQ(refused.status, 1) << refused.err;
        ASSERT_TRUE(refused.err.starts_with("rank 0: -d 35 is not a multiple of B*T*processes = 136\n"))
            << refused.err;
    }
}

// Whatever the job does so many seconds after its launcher has started.
TEST_F(Devices, EndWithALineWhenASignalComesEarly) {
    const std::string until_started = R"(
        while kill -0 $job && ! pgrep -f "^(mpirun|prterun) .*$OUTPUT" >/dev/null; do sleep 0.01; done
        )";
    for (const std::string seconds : {"0", "0.1", "0.3", "0.6", "1"}) {
        const ProgramResult result = run_with_script(until_started + "sleep " + seconds + "; kill -INT $job",
                                                     {"-x", "1000000", "-n", "0"});
        EXPECT_EQ(result.status, 130) << seconds;
        EXPECT_NE((result.out + result.err).find("stopped by SIGINT"), std::string::npos)
            << seconds << result.out << result.err;
        EXPECT_EQ(result.err.find("has died"), std::string::npos) << seconds << result.err;
        std::filesystem::remove_all(folder("devices"));
    }
}

// A program that is killed cannot pass a signal on.
TEST_F(Devices, EndWithTheirProgram) {
    for (const auto& [number, name] :
         {std::pair(SIGINT, "SIGINT"), {SIGTERM, "SIGTERM"}, {SIGKILL, "SIGTERM"}}) {
        const ProgramResult stopped = run("cpu,cpu", {"-x", "1000000"}, {number, "step    9/"});
        EXPECT_EQ(stopped.status, 128 + number) << stopped.err;
        EXPECT_TRUE(contains(stopped.out, std::string("stopped by ") + name + "; train_gpt2 -o " +
                                              folder("devices") +
                                              " -y 1 --devices cpu,cpu resumes from here"))
            << stopped.err;
        EXPECT_TRUE(contains(stopped.out, "wrote checkpoint")) << stopped.err;
        std::filesystem::remove_all(folder("devices"));
    }
}

// As one process does.
TEST_F(Devices, EndWithALineIfTheirOutputIsLost) {
    for (const std::string reader : {"> /dev/full", "| sed '/step    3/q' > /dev/null"}) {
        const std::string script = "set -o pipefail; \"$@\" " + reader;
        const Words steps = {"-x", reader[0] == '|' ? "1000000" : "3"};
        const ProgramResult lost = run_program(with({"bash", "-c", script, "-"}, command("cpu,cpu", steps)));
        EXPECT_EQ(lost.status, 1) << reader;
        EXPECT_EQ(lost.err,
                  "train_gpt2: standard output could not be written; what it printed is incomplete\n");
        EXPECT_EQ(list_checkpoints(folder("devices")).size(), 1u) << reader;
        std::filesystem::remove_all(folder("devices"));
    }
}

// Signals of one request: from timeout to the program and its group, or from somebody to all processes.
TEST_F(Devices, TakeSignalsThatComeAtOnceAsOne) {
    for (const std::string whom : {"$job $job $job", "$job $(pgrep -f \"^$PROGRAM .*$OUTPUT\")"}) {
        const ProgramResult stopped = run_with_script(
            "after_step_9; for process in " + whom + "; do kill -INT $process; done", {"-x", "1000000"});
        EXPECT_EQ(stopped.status, 130) << whom << stopped.err;
        EXPECT_TRUE(contains(stopped.out, "stopped by SIGINT")) << whom << stopped.err;
        EXPECT_TRUE(contains(stopped.out, "wrote checkpoint")) << whom << stopped.err;
        std::filesystem::remove_all(folder("devices"));
    }
}

// Ctrl-Z stops all processes, fg continues them, and so does the end of their program.
TEST_F(Devices, StopAndContinueWithTheirProgram) {
    for (const std::string last : {"-CONT", "-KILL"}) {
        const std::string script = R"(
        steps() { grep -s -c '^s:' "$OUTPUT/main.log"; }
        later() { until now=$(steps); [ ${now:-0} -gt $1 ]; do sleep 0.1; done; }
        later 9
        kill -TSTP $job
        until ps -o stat= -p $job | grep -q ^T; do sleep 0.1; done
        sleep 0.5; before=$(steps); sleep 1; [ $before = $(steps) ] && echo all have stopped
        kill $LAST $job
        if [ $LAST = -CONT ]; then later $before; kill -TERM $job; fi)";
        const ProgramResult result = run_with_script("LAST=" + last + script, {"-x", "1000000"});
        EXPECT_TRUE(contains(result.out, "all have stopped")) << result.err;
        EXPECT_TRUE(contains(result.out, "stopped by SIGTERM")) << result.err;
        std::filesystem::remove_all(folder("devices"));
    }
}
