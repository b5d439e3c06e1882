// Runs of train_gpt2 whose file operations fail: after each, there was no abort, at most one error line, the
// earlier checkpoint resumes bit-identically, and nothing is left over. tests/file_fault.cpp makes the
// calls fail. A sample of the calls is tested, with a printed seed; FILE_FAULT_ALL=1 tests all of them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>

#include <algorithm>
#include <random>
#include <set>
#include <sstream>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/files/checkpoint.h"
#include "tests/tiny_run.h"

static const int one_thread = setenv("OMP_NUM_THREADS", "1", 1);

// 4 steps, then 4 more; a checkpoint every 2, of which one is kept.
static const Words four = words_of("-x 4 -n 2 -nk 1 -s 0 -v 3 -m 2 --device cpu");
static const Words eight_resumed = {"-x", "8", "-y", "1"};

struct Faults : Data {
    // Runs the trainer with the library. `settings` are its variables, for example {"FILE_FAULT=any:3:EIO"}.
    ProgramResult run_with(const std::string& folder, const Words& settings, const Words& options) const {
        return run_program(faulty(folder, settings, with({program, "-o", folder}, options)));
    }
    ProgramResult start(const std::string& folder, const Words& settings) const {
        return run_with(folder, settings, with(four, args("-i", train, "-j", val, "-e", tiny, "-b 3 -t 17")));
    }
    Words calls_of(const std::string& folder, const Words& options) {
        const std::string log = *this / "calls";
        std::filesystem::remove(log);
        expect_ok(run_with(folder, {"FILE_FAULT_LOG=" + log}, options));
        Words calls;
        std::istringstream text(read_whole_file(log));
        for (std::string line; std::getline(text, line);) calls.push_back(line);
        return calls;
    }
};

static bool is_write(const std::string& call) { return call.starts_with("write "); }

// Lines of standard error that are not warnings.
static int errors_in(const std::string& text) {
    int errors = 0;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) errors += !line.starts_with("warning: ");
    return errors;
}

static std::vector<long> sample(long count, size_t size, std::mt19937& random) {
    std::vector<long> all;
    for (long n = 1; n <= count; n++) all.push_back(n);
    if (getenv("FILE_FAULT_ALL")) return all;
    std::shuffle(all.begin(), all.end(), random);
    all.resize(std::min(all.size(), size));
    return all;
}

TEST(FileFault, AnyCallMayFail) {
    Faults data;
    const std::string base = data / "base", whole = data / "whole", b = data / "b";
    expect_ok(data.start(base, {}));
    copy_folder(base, whole);
    const Words calls = data.calls_of(whole, eight_resumed);
    const long count = long(calls.size()), writes = std::count_if(calls.begin(), calls.end(), is_write);
    ASSERT_GT(count, 100);
    ASSERT_GT(writes, 10);
    std::mt19937 random(printed_seed("FILE_FAULT_SEED"));
    int runs = 0;
    for (const std::string error : {"EIO", "ENOSPC", "EINTR", "short", "kill"})
        for (long n : sample(error == "short" ? writes : count, 12, random)) {
            const char* const call = error == "short" ? "write" : "any";
            const std::string fault = format_string("FILE_FAULT=%s:%ld:%s", call, n, error.c_str());
            SCOPED_TRACE(fault);
            copy_folder(base, b);
            const ProgramResult result = data.run_with(b, {fault}, eight_resumed);
            const int expected = error == "kill" ? 128 + SIGKILL : result.status == 0 ? 0 : 1;
            ASSERT_EQ(result.status, expected) << result.out << result.err;
            if (error == "EINTR" || error == "short") {
                EXPECT_EQ(result.status, 0) << result.err;
                EXPECT_EQ(result.err, "");
            }
            EXPECT_EQ(errors_in(result.err), result.status == 1 ? 1 : 0) << result.err;
            const ProgramResult rest = data.run_with(b, {}, eight_resumed);
            ASSERT_EQ(rest.status, 0) << rest.out << rest.err;
            EXPECT_EQ(rest.err, "");
            for (auto path : {model_path, optimizer_path, run_path})
                EXPECT_TRUE(read_whole_file(path(whole, 8)) == read_whole_file(path(b, 8))) << path(b, 8);
            EXPECT_EQ(read_whole_file(b + "/main.log"), read_whole_file(whole + "/main.log"));
            EXPECT_EQ(names_in(b), names_in(whole));
            runs++;
        }
    printf("%d faults in %ld calls\n", runs, count);
}

#ifdef __x86_64__
static bool changes_files(long call) {
    static const std::set<long> calls = {
        SYS_open,  SYS_openat,    SYS_creat,  SYS_write,     SYS_writev, SYS_pwrite64,
        SYS_fsync, SYS_fdatasync, SYS_rename, SYS_renameat,  SYS_unlink, SYS_unlinkat,
        SYS_mkdir, SYS_mkdirat,   SYS_rmdir,  SYS_renameat2, SYS_link,   SYS_linkat,
        SYS_flock, SYS_symlink,   SYS_close,  SYS_ftruncate, SYS_chmod,  SYS_fallocate};
    return calls.count(call);
}

// Runs the program, and kills it before its system call number `kill_at` that may change a file. Returns the
// number of such calls that it came to, and its wait() status.
static const int NOT_TRACED = 126;
static std::pair<long, int> run_traced(Words command, long kill_at) {
    const pid_t child = fork();
    if (child < 0) return {0, NOT_TRACED << 8};
    if (child == 0) {
        std::vector<char*> arguments;
        for (std::string& argument : command) arguments.push_back(argument.data());
        arguments.push_back(nullptr);
        const int nowhere = open("/dev/null", O_RDWR);
        for (int descriptor : {0, 1, 2}) dup2(nowhere, descriptor);
        if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(NOT_TRACED);
        execv(arguments[0], arguments.data());
        _exit(127);
    }
    long calls = 0;
    bool entering = false;
    int status = 0;
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
        ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD);
        user_regs_struct registers = {};
        const bool at_call =
            WSTOPSIG(status) == (SIGTRAP | 0x80) && ptrace(PTRACE_GETREGS, child, nullptr, &registers) == 0;
        if (at_call) entering = !entering;
        if (at_call && entering && changes_files(long(registers.orig_rax)) && ++calls == kill_at)
            kill(child, SIGKILL);
        const long signal = at_call || WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
        ptrace(PTRACE_SYSCALL, child, nullptr, reinterpret_cast<void*>(signal));
    }
    return {calls, status};
}

// The kernel's view: also calls that the library does not see. A run that begins, and one that resumes.
TEST(FileFault, KilledAtAnySystemCall) {
    Faults data;
    const std::string base = data / "base", whole = data / "whole", b = data / "b";
    const Words begin = with(four, args("-i", data.train, "-j", data.val, "-e", tiny, "-b 3 -t 17 -y 1"));
    expect_ok(data.start(base, {}));
    std::mt19937 random(printed_seed("FILE_FAULT_SEED"));
    for (const bool resumes : {false, true}) {
        Words command = with({program, "-o", b}, resumes ? eight_resumed : begin);
        auto prepare = [&] {
            std::filesystem::remove_all(b);
            if (resumes) copy_folder(base, b);
        };
        prepare();
        const auto [count, status] = run_traced(command, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_TRACED) GTEST_SKIP() << "ptrace is not allowed";
        ASSERT_EQ(status, 0);
        ASSERT_GT(count, 100);
        std::filesystem::remove_all(whole);
        std::filesystem::rename(b, whole);
        const int last = resumes ? 8 : 4;
        const std::vector<long> chosen = sample(count, 12, random);
        for (long n : chosen) {
            SCOPED_TRACE(format_string("%s, call %ld of %ld", resumes ? "resumed" : "begun", n, count));
            prepare();
            EXPECT_TRUE(WIFSIGNALED(run_traced(command, n).second));
            expect_ok(run_program(command));
            for (auto path : {model_path, optimizer_path, run_path})
                EXPECT_TRUE(read_whole_file(path(whole, last)) == read_whole_file(path(b, last)))
                    << path(b, last);
            EXPECT_EQ(names_in(b), names_in(whole));
        }
        printf("%s run: killed at %zu of %ld system calls\n", resumes ? "resumed" : "new", chosen.size(),
               count);
    }
}
#endif

// From some call on, every write fails, as on a full disk.
TEST(FileFault, AFullDiskKeepsTheEarlierCheckpoint) {
    Faults data;
    const std::string base = data / "base", whole = data / "whole", b = data / "b";
    expect_ok(data.start(base, {}));
    copy_folder(base, whole);
    long writes = 0;
    for (const std::string& call : data.calls_of(whole, eight_resumed)) writes += is_write(call);
    std::mt19937 random(printed_seed("FILE_FAULT_SEED"));
    for (long n : sample(writes, 12, random)) {
        const std::string fault = format_string("FILE_FAULT=write:%ld+:ENOSPC", n);
        SCOPED_TRACE(fault);
        copy_folder(base, b);
        const ProgramResult result = data.run_with(b, {fault}, eight_resumed);
        ASSERT_LE(result.status, 1) << result.out << result.err;
        EXPECT_EQ(errors_in(result.err), result.status) << result.err;
        EXPECT_GE(find_latest_checkpoint(b).step, 4);
        expect_ok(data.run_with(b, {}, eight_resumed));
        for (auto path : {model_path, optimizer_path, run_path})
            EXPECT_TRUE(read_whole_file(path(whole, 8)) == read_whole_file(path(b, 8))) << path(b, 8);
        EXPECT_EQ(names_in(b), names_in(whole));
    }
}

// A log that cannot be written does not end the run, and gets its lines when it can be.
TEST(FileFault, AFailingLogGivesAWarning) {
    Faults data;
    const std::string a = data / "a", b = data / "b";
    expect_ok(data.start(a, {}));
    const ProgramResult result = data.start(b, {"FILE_FAULT=write:5:ENOSPC"});  // the third are the logs'
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_TRUE(contains(result.err, "warning: cannot write " + b + "/m"));
    EXPECT_EQ(count_lines(result.err), 1) << result.err;
    EXPECT_EQ(read_whole_file(b + "/main.log"), read_whole_file(a + "/main.log"));
    EXPECT_EQ(count_lines(read_whole_file(b + "/metrics.csv")),
              count_lines(read_whole_file(a + "/metrics.csv")));
}

// A file is flushed to disk before it gets its name, the names before DONE, and DONE before anything is
// deleted.
TEST(FileFault, CheckpointsAreFlushedInOrder) {
    Faults data;
    const std::string a = data / "a";
    expect_ok(data.start(a, {}));
    std::set<std::string> flushed;    // files since they were last written
    std::set<std::string> new_names;  // since the folder was last flushed
    int checkpoints = 0;
    for (const std::string& line : data.calls_of(a, eight_resumed)) {
        const size_t space = line.find(' ');
        const std::string call = line.substr(0, space), name = line.substr(space + 1);
        if (call == "write") flushed.erase(name);
        if (call == "fsync") flushed.insert(name);
        if (call == "fsync" && name == ".") new_names.clear();
        if (call == "rename" && name.starts_with("DONE")) {
            EXPECT_TRUE(new_names.empty()) << *new_names.begin();
            checkpoints++;
        }
        if (call == "rename" && !name.starts_with("unfinished")) {
            EXPECT_TRUE(flushed.count(temporary_of(name))) << name;
        }
        if (call == "rename") new_names.insert(name);
        if (call == "unlink" && name.ends_with(".bin")) {
            for (const std::string& new_name : new_names) EXPECT_FALSE(new_name.starts_with("DONE"));
        }
    }
    EXPECT_EQ(checkpoints, 2);
}

// If flushing fails each time, the checkpoint does not count, and the older one stays.
TEST(FileFault, NothingIsPrunedAfterAFailedFlush) {
    Faults data;
    const std::string a = data / "a", b = data / "b";
    expect_ok(data.start(a, {}));
    for (int n : {4, 5, 6, 7, 8, 9, 10, 11}) {  // the first three are the logs' and the options'
        SCOPED_TRACE(n);
        copy_folder(a, b);
        const ProgramResult result =
            data.run_with(b, {format_string("FILE_FAULT=fsync:%d+:EIO", n)}, eight_resumed);
        EXPECT_EQ(result.status, 1) << result.out;
        EXPECT_EQ(errors_in(result.err), 1) << result.err;
        EXPECT_EQ(find_latest_checkpoint(b).step, 4) << result.err;
        EXPECT_EQ(list_checkpoints(b), (std::vector<int>{4}));
    }
}

// A network file system without seek() that writes a removed file at close().
TEST(FileFault, AFailedPreparationLeavesNothing) {
    Faults data;
    const std::string out = data / "out", text = data / "a.txt";
    write_whole_file(text, {numbered(3000, "line ", "\n\n")});
    const Words prepare = args(bin("prepare_data"), "--name n --val-tokens 2000 --out", out, text);
    for (const char* fault : {"FILE_FAULT=lseek:1+:ESPIPE", "FILE_FAULT=write:1+:ENOSPC"}) {
        expect_refusal(run_program(faulty(out, {"FILE_FAULT_LATE=1", fault}, prepare)), "cannot write ");
        EXPECT_EQ(names_in(out), Words()) << fault;
    }
    expect_ok(run_program(faulty(out, {"FILE_FAULT_LATE=1"}, prepare)));
    for (const std::string& name : names_in(out)) EXPECT_FALSE(contains(name, ".vulkan-gpt2.")) << name;
}

TEST(FileFault, RoomIsChecked) {
    Faults data;
    const std::string a = data / "a", b = data / "b";
    const ProgramResult none = data.start(a, {"FILE_FAULT_FREE=100000"});
    expect_refusal(none, "no room for a checkpoint in " + a);
    EXPECT_TRUE(printed_losses(none.out).empty());
    expect_ok(data.start(b, {"FILE_FAULT_FREE=400000"}), "has room for 1 more checkpoint");
}

// A run that was killed before it deleted its last but one checkpoint deletes it when it resumes, before it
// needs room for the next one.
TEST(FileFault, AResumedRunPrunesFirst) {
    Faults data;
    const std::string a = data / "a";
    const Words begin =
        with(four, args("-i", data.train, "-j", data.val, "-e", tiny, "-b 3 -t 17 --no-keep-best"));
    ASSERT_EQ(data.run_with(a, {"FILE_FAULT=rename:14:kill"}, begin).status, 128 + SIGKILL);
    EXPECT_EQ(list_checkpoints(a), (std::vector<int>{4, 2}));
    expect_refusal(data.run_with(a, {"FILE_FAULT_FREE=100000"}, eight_resumed), "free some space");
    EXPECT_EQ(list_checkpoints(a), (std::vector<int>{4}));
    EXPECT_FALSE(std::filesystem::exists(model_path(a, 2)));
}

// Killed at any call while it moves an earlier run aside, the next start finishes it: the earlier run is
// whole, in one folder.
TEST(FileFault, AnEarlierRunIsNeverSplit) {
    Faults data;
    const std::string base = data / "base", b = data / "b";
    expect_ok(data.start(base, {}));
    const Words files = names_in(base);
    const std::string model = read_whole_file(model_path(base, 4));
    const Words again =
        args("-x 0 -y 0 -s 0 -v 0 -i", data.train, "-j", data.val, "-e", tiny, "-b 3 --device cpu -t 17");
    copy_folder(base, b);
    const long count = long(data.calls_of(b, again).size());
    std::mt19937 random(printed_seed("FILE_FAULT_SEED"));
    for (long n : sample(count, 25, random)) {
        SCOPED_TRACE(n);
        copy_folder(base, b);
        EXPECT_EQ(data.run_with(b, {format_string("FILE_FAULT=any:%ld:kill", n)}, again).status,
                  128 + SIGKILL);
        expect_ok(data.run_with(b, {}, again));
        std::string where;  // the new run's own files may have been moved to another folder
        for (const std::string earlier : {"/earlier_1", "/earlier_2"})
            if (std::filesystem::exists(model_path(b + earlier, 4))) where = b + earlier;
        ASSERT_NE(where, "");
        const Words found = names_in(where);
        for (const std::string& name : files)
            EXPECT_TRUE(std::ranges::count(found, name)) << name << " in " << where;
        EXPECT_TRUE(read_whole_file(model_path(where, 4)) == model);
        EXPECT_FALSE(std::filesystem::exists(b + "/moving_earlier_run"));
    }
}
