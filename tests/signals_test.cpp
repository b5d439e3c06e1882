// Signals to train_gpt2: some save and end the run, one saves and continues, and ignored ones stay ignored.
// The checkpoints are bit-identical to an undisturbed run's. A signal ends long work early.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "llmc/base/file.h"
#include "llmc/base/random.h"
#include "llmc/base/signals.h"
#include "llmc/data/hellaswag.h"
#include "llmc/files/checkpoint.h"
#include "tests/tiny_run.h"

#ifndef _WIN32
#include <pty.h>
#include <sys/stat.h>
#include <termios.h>
#endif

static const int one_thread = setenv("OMP_NUM_THREADS", "1", 1);

static const int last = 1000;

// A run of a second or two on the CPU.
static Words command(const Data& data, const std::string& folder) {
    return args(program, "-i", data.train, "-e", tiny, "-b 3 -t 17 -x", std::to_string(last),
                "-n 900 -v 0 -s 0 -l 0.01 -u 3 --device cpu -o", folder);
}

struct Signals : testing::Test {
    Data data;
    const std::string whole = data / "whole", run = data / "run";
    void SetUp() override {
        // A shell without job control ignores these in what it starts in the background.
        for (const int number : {SIGINT, SIGQUIT, SIGHUP}) std::signal(number, SIG_DFL);
        expect_ok(run_program(command(data, whole)));
    }
    void resume() const { expect_ok(run_program("train_gpt2 -y 1 -o", run)); }

    // The run of that exit status and output was stopped on its way, has said why, and resumes.
    void expect_saved(int status, const std::string& output, int number, const std::string& name) {
        EXPECT_EQ(status, 128 + number) << output;
        EXPECT_TRUE(contains(output, "stopped by " + name));
        const int step = find_latest_checkpoint(run).step;
        EXPECT_GE(step, 20);
        EXPECT_LT(step, last);
        resume();
        expect_bit_identical(whole, run, last);
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
    Words stop = {BINARY_DIR "/ctrl_c", data / "log", "20/1000"};
    const Words train = command(data, run);
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
    EXPECT_TRUE(contains(err, ": stopped by " + name + "\n"));
    EXPECT_EQ(count_lines(err), 1) << err;
}

using Interrupts = InFolder;

// prepare_data is in the middle of its work while the pipe that it reads is open.
TEST_F(Interrupts, RemoveShardsThatAreNotComplete) {
    std::string text = "some text";
    const std::string made = folder / "data", small = folder / "small.txt";
    write_whole_file(small, {text});
    const Words prepare = args(bin("prepare_data"), "--shard-tokens 100000 --out", made, "--name x");
    Words first = prepare, next = prepare;
    first.push_back(small);
    next.push_back("-");
    expect_ok(run_program(first));
    const Words before = names_in(made);
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
        wait_for(made + "/x_train_000000.bin.vulkan-gpt2.new");
        stopped.send(number);
        close(ends[1]);
        expect_stopped(stopped, number, name);
        EXPECT_EQ(names_in(made), before);
        EXPECT_EQ(read_whole_file(made + "/x_train.bin"), shard);
    }
}

TEST_F(Interrupts, RemoveACorpusThatIsNotComplete) {
    Process corpus({BINARY_DIR "/make_corpus", "--out", folder / "a.txt", "--bytes", "1000000000000"});
    wait_for(temporary_of(folder / "a.txt"));
    corpus.send(SIGTERM);
    expect_stopped(corpus, SIGTERM, "SIGTERM");
    EXPECT_EQ(names_in(folder.path), Words());

    Process run({program, "--text", "stories", "-o", folder / "run"});
    wait_for(folder / "run/tokens");
    run.send(SIGTERM);
    expect_stopped(run, SIGTERM, "SIGTERM");
    for (const std::string& name : names_in(folder / "run/tokens"))
        EXPECT_FALSE(name.find(".vulkan-gpt2.") != name.npos) << name;
}

// The text and the words of a tokenizer take long, and nothing is written meanwhile.
TEST_F(Interrupts, EndWorkBetweenReadingAndWriting) {
    std::string text;
    Random random(1);
    while (text.size() < 4 << 20) text += random.next32() % 60 == 0 ? '\n' : char('a' + random.next32() % 26);
    write_whole_file(folder / "text", {text});
    const std::string words = "--tokenizer bpe:30000 --device cpu";
    for (const int milliseconds : {10, 1000})
        for (const bool trains : {false, true}) {
            const std::string out = folder / std::to_string(milliseconds);
            Process stopped(
                trains ? with({program, "--text", folder / "text", "-o", out},
                              words_of(words + " -x 1 -e custom:layers=1,heads=1,channels=16,max_seq_len=32"))
                       : with({bin("prepare_data"), folder / "text", "--out", out, "--name", "x"},
                              words_of(words)));
            wait_for(out + (trains ? "/tokens/text.vulkan-gpt2.lock" : "/x.vulkan-gpt2.lock"));
            usleep(useconds_t(milliseconds) * 1000);
            stopped.send(SIGTERM);
            std::string shown, err;
            while (stopped.read(shown, err, 1)) continue;
            EXPECT_EQ(stopped.wait(), 128 + SIGTERM) << err;
            EXPECT_TRUE(contains(err, ": stopped by SIGTERM\n"));
            EXPECT_FALSE(contains(shown, "tokens from"));
        }
}

// A program, started through a shell with these redirections.
struct Redirected : TemporaryFolder {
    Process process;
    Redirected(const Words& command, const std::string& redirections)
        : process(with({"bash", "-c", "echo $$ >\"$0\" && mv \"$0\" \"$0.done\"; exec \"$@\" " + redirections,
                        *this / "pid"},
                       command)) {
        wait_for(*this / "pid.done");
    }

    // The state and the CPU time of the program, "" once it has ended.
    std::string activity() const {
        std::string stat;
        std::getline(std::ifstream("/proc/" + std::to_string(pid()) + "/stat"), stat);
        const Words fields = words_of(stat.substr(stat.rfind(')') + 1));
        return fields.size() > 12 ? fields[0] + " " + fields[11] + " " + fields[12] : "";
    }
    int pid() const { return std::stoi(read_whole_file(*this / "pid.done")); }

    void wait_until_blocked() const {
        std::string before;
        for (int same = 0, total = 0; same < 5 && total < 300 && !before.starts_with("Z"); total++) {
            usleep(100000);
            const std::string now = activity();
            same = now == before && now.starts_with("S") ? same + 1 : 0;
            before = now;
        }
        EXPECT_TRUE(before.starts_with("S")) << before;
    }

    // The exit status. Error if a signal does not end the program soon.
    int stop(int number, std::string& err) {
        std::string out;
        process.send(number);
        for (int i = 0; i < 200 && !process.has_ended(); i++) usleep(100000);
        EXPECT_TRUE(process.has_ended()) << "the signal had no effect";
        if (!process.has_ended()) process.kill();
        while (process.read(out, err, 1)) continue;
        return process.wait();
    }
};

// FIFOs whose other end nobody has opened, and whose other end neither writes nor reads.
struct Fifos : TemporaryFolder {
    std::string alone = *this / "alone", stalled = *this / "stalled";
    int both_ends = -1;
    Fifos() {
        EXPECT_EQ(mkfifo(alone.c_str(), 0600) | mkfifo(stalled.c_str(), 0600), 0);
        both_ends = open(stalled.c_str(), O_RDWR | O_CLOEXEC);
        fcntl(both_ends, F_SETPIPE_SZ, 4096);
    }
    ~Fifos() { close(both_ends); }
    void empty() {
        close(std::exchange(both_ends, open(stalled.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK)));
        char bytes[4096];
        while (read(both_ends, bytes, sizeof bytes) > 0) continue;
    }
};

TEST(BlockedPrograms, EndAtTheFirstSignal) {
    Fifos fifos;
    const std::string out = fifos / "out", model = fifos / "model", text = fifos / "text.txt";
    const std::string prepare = BINARY_DIR "/prepare_data", corpus = BINARY_DIR "/make_corpus",
                      generate = BINARY_DIR "/generate", &alone = fifos.alone, &stalled = fifos.stalled;
    const std::string tokens = " --out " + out + " --name x ", stories = corpus + " --bytes 3000000 --out ",
                      small = " -e custom:layers=1,heads=2,channels=16,max_seq_len=32 --device cpu -o ";
    write_whole_file(text, {std::string(30000, 'a')});
    expect_ok(run_program(words_of(program + " --text " + text + small + model + " -x 1 -s 0")));
    struct Case {
        std::string command, redirections = "";
    };
    const Case cases[] = {{prepare + tokens + stalled},
                          {prepare + tokens + alone},
                          {prepare + tokens + "-", "<" + stalled},
                          {prepare + " hellaswag " + stalled + " --out " + out},
                          {prepare + " hellaswag " + alone + " --out " + out},
                          {stories + stalled},
                          {stories + alone},
                          {stories + "/dev/stdout", ">" + stalled},
                          {program + " -e " + model + " --export gguf " + stalled},
                          {program + " -e " + model + " --export gguf " + alone},
                          {prepare + tokens + "--files-from " + alone},
                          {program + " --config " + alone},
                          {generate + " -e " + model + " -", "<" + stalled},
                          {generate + " -e " + model + " --file " + alone},
                          {generate + " -e " + model + " -n 20000 --ignore-end x", ">" + stalled}};
    const std::pair<int, const char*> signals[] = {
        {SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}, {SIGHUP, "SIGHUP"}};
    for (size_t i = 0; i < std::size(cases) && !HasFailure(); i++) {
        const auto& [command, redirections] = cases[i];
        const auto& [number, name] = signals[i % 3];
        SCOPED_TRACE(command + redirections);
        std::string err;
        fifos.empty();
        {
            Redirected blocked(words_of(command), redirections);
            blocked.wait_until_blocked();
            EXPECT_EQ(blocked.stop(number, err), 128 + number) << err;
        }
        EXPECT_TRUE(contains(err, ": stopped by " + std::string(name) + "\n"));
        if (!std::filesystem::exists(out)) continue;
        for (const auto& file : std::filesystem::recursive_directory_iterator(out))
            EXPECT_TRUE(file.is_directory() || file.path().filename() == ".running") << file.path();
        std::filesystem::remove_all(out);
    }
}

// Nobody reads the pipe, or the terminal is stopped, as by Control-S.
TEST_F(Signals, AStalledOutputDoesNotHoldUpTheCheckpoint) {
    Fifos fifos;
    int terminal = -1, shell = -1;
    ASSERT_EQ(openpty(&terminal, &shell, nullptr, nullptr, nullptr), 0);
    fcntl(terminal, F_SETFD, FD_CLOEXEC);
    fcntl(shell, F_SETFD, FD_CLOEXEC);
    const std::string outputs[] = {fifos.stalled, ttyname(shell)};
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGXCPU, SIGUSR2}) {
        const bool on_terminal = number == SIGINT;
        const std::string& output = outputs[on_terminal];
        SCOPED_TRACE(output);
        std::string err;
        fifos.empty();
        Redirected blocked(command(data, run), ">" + output + " 2>&1");
        wait_for(run + "/main.log");
        if (on_terminal) tcflow(shell, TCOOFF);
        blocked.wait_until_blocked();
        EXPECT_EQ(blocked.stop(number, err), 128 + number);
        EXPECT_LT(find_latest_checkpoint(run).step, last);
        resume();
        expect_bit_identical(whole, run, last);
        std::filesystem::remove_all(run);
    }
    close(terminal);
    close(shell);
}
#endif

TEST_F(Signals, Sigusr1SavesAndGoesOn) {
    expect_ok(run_program(command(data, run), {SIGUSR1, "step   20/", 0}));
    const std::vector<int> steps = list_checkpoints(run);
    ASSERT_EQ(steps.size(), 3u);  // 1000, 900 and the one that was asked for
    EXPECT_GE(steps[2], 20);
    expect_bit_identical(whole, run, last);
}

TEST_F(Signals, Sigusr1IsExpectedFromTheStart) {
    expect_ok(run_program(command(data, run), {SIGUSR1, "device: ", 0}));
    expect_bit_identical(whole, run, last);
}

TEST_F(Signals, Sigusr1WithoutAFolderIsNoted) {
    Words options = command(data, run);
    options.resize(options.size() - 2);
    expect_ok(run_program(options, {SIGUSR1, "step   20/", 0}), "SIGUSR1 saves nothing");
}

// Neither a checkpoint nor a folder is there to tell of it.
TEST_F(Signals, ARunThatIsStoppedBeforeItsFirstStepSaysSo) {
    std::string lines;
    for (int i = 0; lines.size() < 3000000; i++) lines += "line " + std::to_string(i) + "\n\n";
    write_whole_file(data / "text.txt", {lines});
    const Words text = {program, "--text", data / "text.txt", "--device", "cpu", "-o", run};
    const std::tuple<Words, int, std::string> phases[] = {
        {text, SIGINT, "device: "},
        {text, SIGTERM, "timing"},
        {with(text, {"--dry-run"}), SIGINT, "measured"},
        {with(text, words_of("-e d12 -x 9 --tokenizer bytes -b 1")), SIGINT, "loading the parameters"}};
    for (const auto& [words, number, phase] : phases) {
        SCOPED_TRACE(phase);
        const ProgramResult stopped = run_program(words, {number, phase, 0});
        EXPECT_EQ(stopped.status, 128 + number) << stopped.err;
        EXPECT_TRUE(contains(stopped.err, std::string("train_gpt2: stopped by ") + signal_name(number)));
        EXPECT_EQ(contains(stopped.err, " before training began\n"), words.back() != "--dry-run");
        EXPECT_EQ(count_lines(stopped.err), 1) << stopped.err;
    }
}

// While its output is a pipe, Control-C ends it between two answers, too, with one line.
TEST_F(Signals, AConversationThatIsStoppedSaysSo) {
    const std::string generate = BINARY_DIR
        "/generate --tokenizer bytes -n 2 -i --device cpu "
        "-e custom:layers=1,heads=1,channels=8,max_seq_len=16,vocab=257";
    for (const int number : {SIGINT, SIGTERM}) {
        const ProgramResult stopped =
            run_program({"bash", "-c", "exec " + generate + " < <({ echo one; exec sleep 9; } 2>/dev/null)"},
                        {number, "", 2});
        EXPECT_EQ(stopped.status, 128 + number);
        EXPECT_TRUE(contains(stopped.err, "generate: stopped by ")) << stopped.err.substr(0, 1000);
        EXPECT_LE(count_lines(stopped.err), 4);
    }
}

// Each kind of work would take minutes, and prints the text at its end.
TEST_F(Signals, LongWorkEndsWithinAMicroBatchOrAToken) {
    const std::string large = data / "large.bin", questions = data / "hellaswag.bin";
    write_tokens(large, 30000000, 67);
    const HellaSwagExample example = {0, {1, 6, 11}, {{{16, 5}, {21, 2}, {3, 4}, {5, 1}}}};
    write_hellaswag(questions, std::vector<HellaSwagExample>(65535, example));
    struct Work {
        Words options;
        std::string begins, ends;
    };
    const Work all[] = {
        {{"-d", "510000000"}, "micro-batch", "step    1/"},
        {{"-j", large, "-v", "10"}, "validating", "val loss"},
        {args("-j", data.val, "-v 1 -h 1 --hellaswag-file", questions), "at step 1 ", "HellaSwag:"},
        {args("-s 1 -g 1000000"), "generating:", "step    2/"}};
    for (const Work& work : all) {
        SCOPED_TRACE(work.begins);
        const ProgramResult stopped =
            run_program(with(command(data, run), work.options), {SIGTERM, work.begins, 0});
        EXPECT_EQ(stopped.status, 128 + SIGTERM) << stopped.err;
        EXPECT_TRUE(contains(stopped.out, work.begins));
        EXPECT_FALSE(contains(stopped.out, work.ends)) << stopped.out.substr(0, 1000);
        EXPECT_TRUE(contains(stopped.out, "-y 1 resumes")) << stopped.err;
        EXPECT_LE(find_latest_checkpoint(run).step, 1);
        std::filesystem::remove_all(run);
    }
}

// Each step accumulates the gradients of 40 micro-batches, and an epoch ends within a step.
TEST_F(Signals, AStepThatIsNotFinishedIsRepeated) {
    const Words options = with(command(data, run), args("-d", std::to_string(40 * 3 * 17), "-x 60 -n 60"));
    expect_ok(run_program(with(options, {"-o", whole})));
    for (const char* step : {"step    1/", "step    7/", "step   30/"}) {
        SCOPED_TRACE(step);
        const ProgramResult stopped = run_program(options, {SIGTERM, step, 0});
        EXPECT_EQ(stopped.status, 128 + SIGTERM) << stopped.err;
        resume();
        expect_bit_identical(whole, run, 60);
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
        EXPECT_FALSE(contains(result.out, "stopped by"));
        expect_bit_identical(whole, run, last);
        std::filesystem::remove_all(run);
    }
}

// As timeout does, which signals a program and its group.
TEST_F(Signals, TheSameSignalAtOnceAgainSavesAndEnds) {
    const std::string script =
        "\"$@\" & pid=$!; until grep -q 'step   20/' \"$0\" || ! kill -0 $pid; do sleep 0.01; done; "
        "for i in 1 2 3; do kill -INT $pid; done; wait $pid";
    const Words shell = {"bash", "-c", "set -m; " + script,   data / "log",
                         "bash", "-c", "exec \"$@\" >\"$0\"", data / "log"};
    const ProgramResult stopped = run_program(with(shell, command(data, run)));
    expect_saved(stopped.status, read_whole_file(data / "log") + stopped.err, SIGINT, "SIGINT");
}

// The run is busy with a long micro-batch when both arrive: only the second one ends it at once.
TEST_F(Signals, ASecondSigintEndsAtOnce) {
    const std::string script =
        "\"$@\" & pid=$!; until grep -q micro-batch \"$0\" || ! kill -0 $pid; do sleep 0.05; done; "
        "kill -INT $pid; sleep 0.3; kill -0 $pid && echo alive; kill -INT $pid; wait $pid; echo status $?";
    const std::string log = data / "log";
    Words options = {"bash", "-c", "set -m; exec >\"$0.out\"; { " + script + "; }", log};
    const Words train =
        with(command(data, run),
             args("-e custom:layers=6,heads=8,channels=512,max_seq_len=1024,vocab=67 -t 1024"));
    options.insert(options.end(), {"bash", "-c", "exec \"$@\" >\"$0\"", log});
    options.insert(options.end(), train.begin(), train.end());
    const auto start = std::chrono::steady_clock::now();
    run_program(options);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
    EXPECT_EQ(read_whole_file(log + ".out"), "alive\nstatus 130\n");
    EXPECT_TRUE(list_checkpoints(run).empty());
}
