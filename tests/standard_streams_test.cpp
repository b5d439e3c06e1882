// What every program does about its standard streams and the limits of the system: output that cannot be
// written, descriptors that are closed, limits of memory, threads and file sizes.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>

#include "llmc/base/file.h"
#include "llmc/cpu/gemm_kernels.h"
#include "llmc/files/checkpoint.h"
#include "tests/tiny_run.h"

static const int one_thread = setenv("OMP_NUM_THREADS", "1", 1);

static const std::string bytes_model = "custom:layers=2,heads=2,channels=24,max_seq_len=32,vocab=257";

// Runs a shell command after cd to the folder; $BIN is the folder of the programs.
static ProgramResult run_shell(const std::string& folder, const std::string& command) {
    return run_program({"bash", "-c", "BIN=" BINARY_DIR "; cd " + folder + "; " + command});
}

// One line per program that prints something and succeeds.
static Words commands() {
    Words all = {BINARY_DIR "/eval -e " + bytes_model + " -i val.bin -m 1 --device cpu",
                 BINARY_DIR "/generate -e " + bytes_model + " --device cpu -n 2 text",
                 BINARY_DIR "/train_gpt2 -i train.bin -e " + tiny + " -b 1 -t 8 -x 2 -s 0 -v 0 --device cpu",
                 BINARY_DIR "/train_gpt2 -i train.bin -e " + tiny + " -b 1 -t 8 -x 2 -s 1 -v 0 --device cpu",
                 BINARY_DIR "/train_gpt2 --help",
                 BINARY_DIR "/eval --version",
                 BINARY_DIR "/prepare_data --help",
                 BINARY_DIR "/make_corpus --version"};
    for (const std::string name : {"report", "compile_kernels"})  // built with the benchmarks
        if (std::filesystem::exists(BINARY_DIR "/" + name)) all.push_back(BINARY_DIR "/" + name + " --help");
    return all;
}

using StandardStreams = WithData;

TEST_F(StandardStreams, OutputThatCannotBeWrittenIsAnError) {
    for (const std::string& command : commands()) {
        SCOPED_TRACE(command);
        expect_ok(run_shell(data.path, command));
        const ProgramResult full = run_shell(data.path, command + " >/dev/full");
        EXPECT_EQ(full.status, 1) << full.err;
        const size_t line = full.err.find("standard output"), text = full.err.find("cannot print the text");
        EXPECT_TRUE(line != std::string::npos || text != std::string::npos) << full.err;
        EXPECT_EQ(count_lines(full.err.substr(std::min(line, text))), 1) << full.err;
    }
}

TEST_F(StandardStreams, ARunThatCannotPrintStillSaves) {
    expect_refusal(run_shell(data.path, "$BIN/train_gpt2 -i train.bin -e " + tiny +
                                            " -b 1 -t 8 -x 5 -s 0 -v 0 -n 5 -o out --device cpu >/dev/full"));
    EXPECT_EQ(find_latest_checkpoint(data / "out").step, 5);
}

TEST_F(StandardStreams, AReaderThatGoesAwayEndsARunWithACheckpoint) {
    expect_refusal(run_shell(
        data.path, "$BIN/train_gpt2 -i train.bin -e " + tiny +
                       " -b 1 -t 8 -x 100000 -s 0 -v 0 -n 100000 -o out --device cpu | head -20 >/dev/null; "
                       "exit ${PIPESTATUS[0]}"));
    EXPECT_GT(find_latest_checkpoint(data / "out").step, 5);
}

// Otherwise a file that the program opens becomes its standard output.
TEST_F(StandardStreams, ClosedDescriptorsAreNotReused) {
    const std::string options = " -i train.bin -j val.bin -e " + tiny +
                                " -b 1 -t 8 -x 5 -s 2 -v 2 -n 2 --tensorboard --device cpu -o ";
    expect_ok(run_shell(data.path, "$BIN/train_gpt2" + options + "open"));
    for (const char* closed : {"<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"}) {
        SCOPED_TRACE(closed);
        std::filesystem::remove_all(data / "closed");
        expect_ok(run_shell(data.path, "$BIN/train_gpt2" + options + "closed " + closed));
        for (const auto& entry : std::filesystem::recursive_directory_iterator(data / "open")) {
            const std::string name = std::filesystem::relative(entry.path(), data / "open").string();
            if (!entry.is_regular_file() || name == "options.toml" || name == "metrics.csv") continue;
            if (name.rfind("tensorboard", 0) == 0) continue;  // has the time in its name
            EXPECT_TRUE(read_whole_file(data / ("closed/" + name)) ==
                        read_whole_file(data / ("open/" + name)))
                << name;
        }
        for (const auto& entry : std::filesystem::recursive_directory_iterator(data / "closed"))
            EXPECT_TRUE(entry.is_directory() ||
                        read_whole_file(entry.path().string()).find("| loss ") == std::string::npos)
                << entry.path();
    }
}

using Limits = WithData;

TEST_F(Limits, OfMemoryGiveASentence) {
#if defined(SANITIZED)
    GTEST_SKIP() << "the sanitizer reserves more addresses than any limit";
#endif
    write_tokens(data.train, 4000, 5000);  // of this vocabulary: there is no warning
    int failed = 0;
    for (int kib = 30000; kib <= 240000; kib += 15000)
        for (const char* threads : {"1", "8"}) {
            SCOPED_TRACE(std::to_string(kib) + " KiB, threads " + threads);
            const ProgramResult result = run_shell(
                data.path, "ulimit -v " + std::to_string(kib) + " && OMP_NUM_THREADS=" + threads +
                               " $BIN/train_gpt2 -i train.bin -e custom:layers=6,heads=2,channels=256,"
                               "max_seq_len=64,vocab=5000 -b 2 -t 32 -x 1 -s 0 -v 0 --device cpu");
            if (result.status == 0 || result.status == 127) continue;  // 127: the loader had too little
            failed++;
            expect_refusal(result);
            const bool memory = result.err.find("memory") != std::string::npos,
                       starts = result.err.rfind("train_gpt2: ", 0) == 0;
            EXPECT_TRUE(memory && starts) << result.err;
        }
    EXPECT_GE(failed, 4);
}

// A limit of the data leaves the loader alone, and is met anywhere: also in a thread of a parallel region.
TEST_F(Limits, OfDataGiveASentence) {
#if defined(SANITIZED)
    GTEST_SKIP() << "the sanitizer takes more memory than any limit";
#endif
    const std::string shape = "custom:layers=2,heads=2,channels=64,max_seq_len=32,vocab=257";
    int failed = 0;
    for (int kib = 1000; kib <= 48000; kib += 1000)
        for (const std::string& command :
             {"train_gpt2 -i train.bin -e " + shape + " -b 2 -t 32 -x 1 -s 1 -v 0 --device cpu",
              "eval -e " + shape + " -i train.bin -m 2 --device cpu",
              "generate -e " + shape + " -n 3 text"}) {
            const ProgramResult result = run_shell(
                data.path, "ulimit -d " + std::to_string(kib) + " && OMP_NUM_THREADS=2 $BIN/" + command);
            if (result.status == 0) continue;
            failed++;
            const std::string name = command.substr(0, command.find(' '));
            EXPECT_EQ(result.status, 1) << kib << " " << command << result.err;
            EXPECT_NE(("\n" + result.err).rfind("\n" + name + ": "), std::string::npos) << result.err;
        }
    EXPECT_GE(failed, 4);
}

// Ends the process with status 3 if a thread's buffer for GEMMs throws because there is no memory at all.
[[noreturn]] static void make_buffer_without_memory() {
    const rlimit none = {0, 0};
    setrlimit(RLIMIT_DATA, &none);
    for (size_t bytes = 1 << 20; bytes >= 8; bytes /= 2)
        while (true) {
            void* volatile block = malloc(bytes);
            if (!block) break;
        }
    try {
        thread_local LineFloats buffer;
        buffer.at_least(1);
    } catch (const std::bad_alloc&) {
        _exit(3);
    }
    _exit(0);
}

TEST_F(Limits, AThreadsBufferThrowsWithoutMemory) {
#if defined(SANITIZED)
    GTEST_SKIP() << "the sanitizer's malloc ends the program";
#endif
    EXPECT_EXIT(make_buffer_without_memory(), testing::ExitedWithCode(3), "");
}

TEST_F(Limits, OfThreadsGiveASentence) {
    for (const std::string& command : commands())
        expect_refusal(run_program(with({"env", "OMP_NUM_THREADS=99999"}, words_of(command))),
                       ": OMP_NUM_THREADS=99999: at most 1024 threads");
}

TEST_F(Limits, OfStacksGiveASentence) {
#if defined(SANITIZED)
    GTEST_SKIP() << "the sanitizer needs a larger stack before main()";
#endif
    for (const std::string& command : commands())
        for (const int kib : {64, 200, 1023})
            expect_refusal(
                run_shell("/", "ulimit -s " + std::to_string(kib) + " && OMP_NUM_THREADS=4 " + command),
                ": the stack is limited to " + std::to_string(kib) + " KiB, and needs");
}

TEST_F(Limits, OfFileSizesGiveASentence) {
    const ProgramResult result =
        run_shell(data.path, "ulimit -f 20; $BIN/train_gpt2 -i train.bin -e " + tiny +
                                 " -b 1 -t 8 -x 2 -s 0 -v 0 -n 2 --device cpu -o out");
    EXPECT_EQ(result.status, 1);
    EXPECT_TRUE(contains(result.err, "train_gpt2: cannot write out/"));
    EXPECT_TRUE(contains(result.err, "File too large"));
}
