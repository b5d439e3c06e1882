// Signals to train_gpt2: some save and end the run, one saves and continues, and ignored ones stay ignored.
// The checkpoints are bit-identical to an undisturbed run's. A signal ends long work early.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "llmc/base/file.h"
#include "llmc/data/hellaswag.h"
#include "llmc/files/checkpoint.h"
#include "tests/tiny_run.h"

static const int one_thread = setenv("OMP_NUM_THREADS", "1", 1);

static const int last = 1000;

// A run of a second or two on the CPU.
static std::vector<std::string> command(const Data& data, const std::string& folder) {
    return {program, "-i",  data.train, "-e", tiny, "-b", "3",  "-t",   "17", "-x", std::to_string(last),
            "-n",    "900", "-v",       "0",  "-s", "0",  "-l", "0.01", "-u", "3",  "--device",
            "cpu",   "-o",  folder};
}

static void expect_same_end(const std::string& a, const std::string& b) {
    for (auto path : {model_path, optimizer_path}) {
        ASSERT_TRUE(std::filesystem::exists(path(b, last))) << path(b, last);
        EXPECT_TRUE(read_whole_file(path(a, last)) == read_whole_file(path(b, last))) << path(b, last);
    }
}

struct Signals : testing::Test {
    Data data;
    const std::string whole = data / "whole", run = data / "run";
    void SetUp() override {
        // A shell without job control ignores these in what it starts in the background.
        for (const int number : {SIGINT, SIGQUIT, SIGHUP}) std::signal(number, SIG_DFL);
        const ProgramResult result = run_program(command(data, whole));
        ASSERT_EQ(result.status, 0) << result.err;
    }
    void resume() const {
        const ProgramResult result = run_program({program, "-y", "1", "-o", run});
        ASSERT_EQ(result.status, 0) << result.out << result.err;
    }

    // The run of that exit status and output was stopped on its way, has said why, and resumes.
    void expect_saved(int status, const std::string& output, int number, const std::string& name) {
        EXPECT_EQ(status, 128 + number) << output;
        EXPECT_NE(output.find("stopped by " + name), std::string::npos) << output;
        const int step = find_latest_checkpoint(run).step;
        EXPECT_GE(step, 20);
        EXPECT_LT(step, last);
        resume();
        expect_same_end(whole, run);
        std::filesystem::remove_all(run);
    }
    void stop_by(int number, const std::string& name) {
        const ProgramResult stopped = run_program(command(data, run), {number, "step   20/", 0});
        expect_saved(stopped.status, stopped.out + stopped.err, number, name);
    }
};

TEST_F(Signals, SomeSaveAndEnd) {
    const std::pair<int, const char*> signals[] = {{SIGHUP, "SIGHUP"},
                                                   {SIGXCPU, "SIGXCPU"},
                                                   {SIGINT, "SIGINT"},
                                                   {SIGTERM, "SIGTERM"},
                                                   {SIGUSR2, "SIGUSR2"}};
    for (const auto& [number, name] : signals) stop_by(number, name);
}

#ifdef _WIN32
TEST_F(Signals, CtrlCSavesAndEnds) {
    std::vector<std::string> stop = {BINARY_DIR "/ctrl_c", data / "log", "20/1000"};
    const std::vector<std::string> train = command(data, run);
    stop.insert(stop.end(), train.begin(), train.end());
    const int status = run_program(stop).status;
    expect_saved(status, read_whole_file(data / "log"), 2, "Ctrl-C");
}

TEST_F(Signals, CtrlBreakSavesAndEnds) { stop_by(SIGBREAK, "Ctrl-Break"); }

TEST_F(Signals, ClosingTheWindowSavesAndEnds) { stop_by(SIGHUP, "closing its window"); }
#else
static void wait_for(const std::string& path) {
    for (int i = 0; i < 3000 && !file_exists(path); i++) usleep(10000);
    ASSERT_TRUE(file_exists(path)) << path;
}

static void expect_stopped(Process& stopped, int number, const std::string& name) {
    std::string out, err;
    while (stopped.read(out, err, 1)) continue;
    EXPECT_EQ(stopped.wait(), 128 + number) << err;
    EXPECT_NE(err.find(": stopped by " + name + "\n"), std::string::npos) << err;
    EXPECT_EQ(count_lines(err), 1) << err;
}

// prepare_data is in the middle of its work while the pipe that it reads is open.
TEST(Interrupts, RemoveShardsThatAreNotComplete) {
    const TemporaryFolder folder;
    std::string text = "some text";
    const std::string made = folder / "data", small = folder / "small.txt";
    write_whole_file(small, {text});
    const std::vector<std::string> prepare = {
        BINARY_DIR "/prepare_data", "--shard-tokens", "100000", "--out", made, "--name", "x"};
    std::vector<std::string> first = prepare, next = prepare;
    first.push_back(small);
    next.push_back("-");
    ASSERT_EQ(run_program(first).status, 0);
    const std::vector<std::string> before = names_in(made);
    const std::string shard = read_whole_file(made + "/x_train.bin");
    while (text.size() < 16 << 20) text += "\n\nmore text";
    const std::pair<int, const char*> signals[] = {
        {SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}, {SIGXCPU, "SIGXCPU"}};
    for (const auto& [number, name] : signals) {
        int ends[2];
        ASSERT_EQ(pipe(ends), 0);
        fcntl(ends[1], F_SETFD, FD_CLOEXEC);
        FILE* input = fdopen(ends[0], "r");
        Process stopped(next, input);
        fclose(input);
        EXPECT_EQ(write_bytes(ends[1], text), text.size());
        wait_for(made + "/x_train_000000.bin.new");
        stopped.send(number);
        close(ends[1]);
        expect_stopped(stopped, number, name);
        EXPECT_EQ(names_in(made), before);
        EXPECT_EQ(read_whole_file(made + "/x_train.bin"), shard);
    }
}

TEST(Interrupts, RemoveACorpusThatIsNotComplete) {
    const TemporaryFolder folder;
    Process corpus({BINARY_DIR "/make_corpus", "--out", folder / "a.txt", "--bytes", "1000000000000"});
    wait_for(folder / "a.txt.tmp");
    corpus.send(SIGTERM);
    expect_stopped(corpus, SIGTERM, "SIGTERM");
    EXPECT_EQ(names_in(folder.path), std::vector<std::string>());

    Process run({program, "--text", "stories", "-o", folder / "run"});
    wait_for(folder / "run/tokens");
    run.send(SIGTERM);
    expect_stopped(run, SIGTERM, "SIGTERM");
    for (const std::string& name : names_in(folder / "run/tokens"))
        EXPECT_FALSE(name.ends_with(".tmp") || name.ends_with(".new")) << name;
}
#endif

TEST_F(Signals, Sigusr1SavesAndGoesOn) {
    const ProgramResult result = run_program(command(data, run), {SIGUSR1, "step   20/", 0});
    EXPECT_EQ(result.status, 0) << result.err;
    const std::vector<int> steps = list_checkpoints(run);
    ASSERT_EQ(steps.size(), 3u);  // 1000, 900 and the one that was asked for
    EXPECT_GE(steps[2], 20);
    expect_same_end(whole, run);
    for (const int step : {steps[0], steps[1]}) delete_checkpoint(run, step);
    resume();
    expect_same_end(whole, run);
}

TEST_F(Signals, Sigusr1IsExpectedFromTheStart) {
    const ProgramResult result = run_program(command(data, run), {SIGUSR1, "device: ", 0});
    EXPECT_EQ(result.status, 0) << result.err;
    expect_same_end(whole, run);
}

TEST_F(Signals, Sigusr1WithoutAFolderIsNoted) {
    std::vector<std::string> options = command(data, run);
    options.resize(options.size() - 2);
    const ProgramResult result = run_program(options, {SIGUSR1, "step   20/", 0});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("SIGUSR1 saves nothing"), std::string::npos) << result.out;
}

// Each kind of work would take minutes, and prints the text at its end.
TEST_F(Signals, LongWorkEndsWithinAMicroBatchOrAToken) {
    const std::string large = data / "large.bin", questions = data / "hellaswag.bin";
    write_tokens(large, 30000000, 67);
    const HellaSwagExample example = {0, {1, 6, 11}, {{{16, 5}, {21, 2}, {3, 4}, {5, 1}}}};
    write_hellaswag(questions, std::vector<HellaSwagExample>(65535, example));
    struct Work {
        std::vector<std::string> options;
        std::string begins, ends;
    };
    const Work all[] = {
        {{"-d", "510000000"}, "micro-batch", "step    1/"},
        {{"-j", large, "-v", "10"}, "validating", "val loss"},
        {{"-j", data.val, "-v", "1", "-h", "1", "--hellaswag-file", questions}, "at step 1 ", "HellaSwag:"},
        {{"-s", "1", "-g", "1000000"}, "generating:", "step    2/"}};
    for (const Work& work : all) {
        SCOPED_TRACE(work.begins);
        const ProgramResult stopped =
            run_program(with(command(data, run), work.options), {SIGTERM, work.begins, 0});
        EXPECT_EQ(stopped.status, 128 + SIGTERM) << stopped.err;
        EXPECT_NE(stopped.out.find(work.begins), std::string::npos) << stopped.out;
        EXPECT_EQ(stopped.out.find(work.ends), std::string::npos) << stopped.out.substr(0, 1000);
        EXPECT_NE(stopped.out.find("-y 1 resumes"), std::string::npos) << stopped.err;
        EXPECT_LE(find_latest_checkpoint(run).step, 1);
        std::filesystem::remove_all(run);
    }
}

// Each step accumulates the gradients of 40 micro-batches, and an epoch ends within a step.
TEST_F(Signals, AStepThatIsNotFinishedIsRepeated) {
    const std::vector<std::string> options =
        with(command(data, run), {"-d", std::to_string(40 * 3 * 17), "-x", "60", "-n", "60"});
    ASSERT_EQ(run_program(with(options, {"-o", whole})).status, 0);
    for (const char* step : {"step    1/", "step    7/", "step   30/"}) {
        const ProgramResult stopped = run_program(options, {SIGTERM, step, 0});
        EXPECT_EQ(stopped.status, 128 + SIGTERM) << stopped.err;
        resume();
        for (auto path : {model_path, optimizer_path})
            EXPECT_TRUE(read_whole_file(path(whole, 60)) == read_whole_file(path(run, 60))) << step;
        std::filesystem::remove_all(run);
    }
}

// As nohup and background jobs of a shell without job control do.
TEST_F(Signals, WhatTheParentIgnoresStaysIgnored) {
    for (const int number : {SIGINT, SIGHUP, SIGTERM}) {
        const auto before = std::signal(number, SIG_IGN);
        const ProgramResult result = run_program(command(data, run), {number, "step   20/", 0});
        std::signal(number, before);
        EXPECT_EQ(result.status, 0) << result.out.substr(result.out.rfind("step")) << result.err;
        EXPECT_EQ(result.out.find("stopped by"), std::string::npos);
        expect_same_end(whole, run);
        std::filesystem::remove_all(run);
    }
}

// The run is busy with a long micro-batch when both arrive: only the second one ends it at once.
TEST_F(Signals, ASecondSigintEndsAtOnce) {
    const std::string script =
        "\"$@\" & pid=$!; until grep -q micro-batch \"$0\"; do sleep 0.05; done; kill -INT $pid; sleep 0.3; "
        "kill -0 $pid && echo alive; kill -INT $pid; wait $pid; echo status $?";
    const std::string log = data / "log";
    std::vector<std::string> options = {"bash", "-c", "set -m; exec >\"$0.out\"; { " + script + "; }", log};
    const std::vector<std::string> train = command(data, run);
    options.insert(options.end(), {"bash", "-c", "exec \"$@\" >\"$0\"", log});
    options.insert(options.end(), train.begin(), train.end());
    options.insert(options.end(),
                   {"-e", "custom:layers=6,heads=8,channels=512,max_seq_len=1024,vocab=67", "-t", "1024"});
    const auto start = std::chrono::steady_clock::now();
    run_program(options);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
    EXPECT_EQ(read_whole_file(log + ".out"), "alive\nstatus 130\n");
    EXPECT_TRUE(list_checkpoints(run).empty());
}
