// The lease of a run's folder: of two jobs, one has it, also where locks exclude nobody.
#include "llmc/run/lease.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "llmc/base/clock.h"
#include "llmc/base/json.h"
#include "llmc/base/os.h"
#include "llmc/base/system_files.h"
#include "llmc/files/checkpoint.h"
#include "llmc/run/run_folder.h"
#include "tests/message_of.h"
#include "tests/small_checkpoint.h"
#include "tests/tiny_run.h"

static const int one_thread = setenv("OMP_NUM_THREADS", "1", 1);

static std::string lease_text(int64_t process, const std::string& start, const std::string& of) {
    return json_text({{"host", "node7"},
                      {"job", "4711"},
                      {"process", process},
                      {"processes_of", of},
                      {"started", start},
                      {"since", "2026-01-01 00:00:00 UTC"}}) +
           "\n";
}

static const std::string of_another_machine = lease_text(12, "34", "another");

static const Lease::Times quick = {0.02, 0.02, 20};

struct Leases : testing::Test {
    TemporaryFolder folder;
    std::string path = folder / "lease.json";

    // What a job prints that takes the lease, or its error; quick, but for a lease that is looked at often.
    std::string take(int looks = 20) {
        testing::internal::CaptureStdout();
        std::string error;
        {
            Lease lease;
            error = message_of([&] { lease.take(folder.path, {0.02, 0.02, looks}); });
            EXPECT_TRUE(file_exists(path) || is_link(path));
        }
        return testing::internal::GetCapturedStdout() + error;
    }
};

TEST_F(Leases, GoWithTheirJob) {
    EXPECT_EQ(take(), "");
    EXPECT_FALSE(file_exists(path));
}

TEST_F(Leases, OneThatIsRenewedIsRefused) {
    Lease held;
    held.take(folder.path, quick);
    const std::string said = take();
    EXPECT_TRUE(contains(said, "is using this folder; wait for it, or choose another folder"));
    EXPECT_TRUE(contains(
        said, format_string("process %lld on %s, since ", (long long)process_id(), host_name().c_str())));
    held.check();
}

TEST_F(Leases, OneOfAnotherMachineIsRefusedWhileItsFileChanges) {
    write_whole_file(path, {of_another_machine});
    std::atomic<bool> ends = false;
    std::thread holder([&] {
        while (!ends) {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            touch_file(path);
        }
    });
    const std::string said = take();
    ends = true;
    holder.join();
    EXPECT_TRUE(
        contains(said, "job 4711, process 12 on node7, since 2026-01-01 00:00:00 UTC is using this folder"));
    EXPECT_EQ(read_whole_file(path), of_another_machine);
}

TEST_F(Leases, OneThatDoesNotChangeIsTakenOver) {
    for (const std::string& text :
         {of_another_machine, lease_text(process_id(), process_start(process_id()), process_space())}) {
        write_whole_file(path, {text});
        const double start = now();
        const std::string said = take();
        EXPECT_GT(now() - start, 20 * 0.02);
        EXPECT_TRUE(contains(said, "gives no sign of life: this job takes the folder over"));
    }
}

// Also one that was not waited for, and one whose id another process has by now.
TEST_F(Leases, OneOfAProcessThatHasEndedIsTakenOverAtOnce) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    siginfo_t info;
    ASSERT_EQ(waitid(P_PID, id_t(child), &info, WEXITED | WNOWAIT), 0);
    const std::string before[] = {lease_text(child, "34", process_space()),
                                  lease_text(process_id(), "34", process_space())};
    for (const std::string& text : before) {
        write_whole_file(path, {text});
        const double start = now();
        const std::string said = take(100000);
        EXPECT_LT(now() - start, 60);  // it would wait for 2,000 s
        EXPECT_TRUE(contains(said, "job 4711, process"));
        EXPECT_TRUE(contains(said, "has ended: this job takes the folder over"));
        EXPECT_EQ(count_lines(said), 1) << said;
    }
    waitpid(child, nullptr, 0);
    write_whole_file(path, {before[0]});
    EXPECT_TRUE(contains(take(100000), "has ended"));
}

TEST_F(Leases, OneThatAKilledJobBeganIsTakenOver) {
    write_whole_file(path, {});
    EXPECT_TRUE(contains(take(100000), "left by another job"));
}

TEST_F(Leases, WhatIsNoneStays) {
    for (const std::string text : {"{}", "a text", "{\"process\": \"x\"}"}) {
        write_whole_file(path, {text});
        EXPECT_TRUE(contains(take(), "lease.json was not written by this program: move it"));
        EXPECT_EQ(read_whole_file(path), text);
    }
    const std::string says = "lease.json is not a file, as a job's lease is: remove it";
    std::filesystem::remove(path);
    std::filesystem::create_symlink(folder / "target", path);
    EXPECT_TRUE(contains(take(), says));
    EXPECT_FALSE(file_exists(folder / "target"));
    std::filesystem::remove(path);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);  // whose reader waits
    EXPECT_TRUE(contains(take(), says));
}

TEST_F(Leases, OneThatSomebodyRemovesIsWrittenAgain) {
    Lease lease;
    lease.take(folder.path, quick);
    const std::string text = read_whole_file(path);
    std::filesystem::remove(path);
    lease.check();
    const auto is_written = [&] { return file_exists(path) && read_whole_file(path) == text; };
    for (int i = 0; i < 3000 && !is_written(); i++)  // it is empty at first
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(is_written());
}

// Neither a checkpoint of its own, nor the files of the other job's.
TEST_F(Leases, AJobThatLostItsOwnChangesNoCheckpoint) {
    write_small(folder.path, 4);
    {
        Lease lease;
        lease.take(folder.path, quick);
        write_whole_file(path, {of_another_machine});
        for (const int step : {4, 8}) {
            const std::string error =
                message_of([&] { write_small(folder.path, step, [&] { lease.check(); }); });
            EXPECT_TRUE(contains(error, "another job has taken this folder over"));
        }
        EXPECT_EQ(list_checkpoints(folder.path), std::vector<int>{4});
        EXPECT_EQ(names_in(folder.path).size(), 5u);
        // it is lost while the files are written
        std::filesystem::remove(path);
        int calls = 0;
        expect_error("has taken this folder over", [&] {
            write_small(folder.path, 8, [&] {
                if (++calls == 3) write_whole_file(path, {of_another_machine});
                lease.check();
            });
        });
        EXPECT_EQ(calls, 4);
        EXPECT_EQ(list_checkpoints(folder.path), std::vector<int>{4});
        EXPECT_TRUE(file_exists(model_path(folder.path, 8))) << "the files may be the other job's";
        for (int i = 0; i < 500 && message_of([&] { lease.check_soon(); }).empty(); i++)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        expect_error("has taken this folder over", [&] { lease.check_soon(); });
    }
    EXPECT_EQ(read_whole_file(path), of_another_machine);
}

// --- runs of the program, whose locks exclude nobody ---

struct Jobs : Leases {
    Data data;
    std::string output = data / "out";

    Words command(const Words& options) const {
        const std::string usual = "-b 3 -t 17 -s 0 -v 0 --device cpu -y 1 -nk 2 -e " + tiny;
        return with(with({"env", "LD_PRELOAD=" BINARY_DIR "/libfile_fault.so", "FILE_FAULT_LOCKS=0",
                          "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0", program, "-i", data.train,
                          "-j", data.val, "-o", output},
                         words_of(usual)),
                    options);
    }
};

// A job that runs for a long time, until the test ends it.
struct LongJob {
    ProgramResult result;
    std::thread thread;

    explicit LongJob(const Jobs& jobs)
        : thread([&] { result = run_program(jobs.command(args("-x 10000000 -n 20"))); }) {
        for (int i = 0; i < 3000 && list_checkpoints(jobs.output).empty(); i++)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ~LongJob() { thread.join(); }
};

static pid_t process_of(const std::string& lease) { return read_json_object(lease)["process"].get<pid_t>(); }

TEST_F(Jobs, TheSecondIsRefusedAndAKilledOneIsResumedAtOnce) {
    const std::string lease = output + "/lease.json";
    {
        LongJob first(*this);
        ASSERT_TRUE(file_exists(lease));
        expect_refusal(run_program(command({"-x", "40"})),
                       "is using this folder; wait for it, or choose another folder");
        for (const std::string reader : {"generate", "eval"}) {
            const ProgramResult result =
                run_program({BINARY_DIR "/" + reader, "-e", output, "--device", "cpu"});
            EXPECT_FALSE(contains(result.err, "is using this folder"));
        }
        expect_ok(run_program("train_gpt2 --plot", output));
        expect_ok(run_program("train_gpt2 -e", output, "--export hf", data / "hf"));
        kill(process_of(lease), SIGKILL);
    }
    const int newest = list_checkpoints(output).front();
    const double start = now();
    const ProgramResult next = run_program(command({"-x", std::to_string(newest + 3)}));
    EXPECT_LT(now() - start, 30);  // a lease of another machine's takes a minute
    EXPECT_EQ(next.status, 0) << next.err;
    EXPECT_TRUE(contains(next.out, "has ended: this job takes the folder over"));
    EXPECT_TRUE(contains(next.out, format_string("at step %d", newest)));
    EXPECT_FALSE(file_exists(lease));
}

// As after a machine that was suspended for minutes.
TEST_F(Jobs, OneThatLostItsLeaseEndsWithoutACheckpoint) {
    std::string before;
    {
        LongJob first(*this);
        const pid_t process = process_of(output + "/lease.json");
        kill(process, SIGSTOP);
        write_whole_file(output + "/lease.json", {of_another_machine});
        for (const int step : list_checkpoints(output)) before += " " + std::to_string(step);
        kill(process, SIGCONT);
        first.thread.join();
        first.thread = std::thread([] {});
        expect_refusal(first.result, "another job has taken this folder over");
    }
    std::string after;
    for (const int step : list_checkpoints(output)) after += " " + std::to_string(step);
    EXPECT_EQ(before, after);
    EXPECT_EQ(read_whole_file(output + "/lease.json"), of_another_machine);
}

// A text is prepared before the run begins: what it replaces is the other job's by then.
TEST_F(Jobs, OneThatLostItsLeaseReplacesNoTokens) {
    const auto prepare = [&](const std::string& text) {
        write_whole_file(data / "my.txt", {text});
        return run_program("train_gpt2 --device cpu --text", data / "my.txt",
                           "-e custom:layers=1,heads=2,channels=16 -x 1 --tokenizer bpe:400 -o", output);
    };
    std::string text;
    for (int i = 0; i < 3000; i++) text += "line " + std::to_string(i * i) + "\n";
    expect_ok(prepare(text));
    const std::string tokens = output + "/tokens/text_train.bin", tokens_before = read_whole_file(tokens);
    std::string more;
    for (int i = 0; i < 100; i++) more += text + std::to_string(i);
    for (const bool has_run : {true, false}) {
        SCOPED_TRACE(has_run);
        for (const std::string& name : names_in(output))
            if (!has_run && is_regular(output + "/" + name)) remove_file(output + "/" + name);
        std::thread other([&] {
            const std::string lease = output + "/lease.json";
            const auto is_written = [&] { return file_exists(lease) && !read_whole_file(lease).empty(); };
            for (int i = 0; i < 30000 && !is_written(); i++)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            write_whole_file(lease, {of_another_machine});
        });
        const ProgramResult result = prepare(more);
        other.join();
        expect_refusal(result, "another job has taken this folder over");
        EXPECT_TRUE(read_whole_file(tokens) == tokens_before);
        EXPECT_EQ(file_exists(done_path(output, 1)), has_run);
        remove_file(output + "/lease.json");
    }
}
