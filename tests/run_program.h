// Runs a program in a test and collects its output: run_program({BINARY_DIR "/prepare_data", "--help"}). No
// shell is involved; standard input is empty. Also helpers for files and for the program's output.
#pragma once
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

extern char** environ;

struct ProgramResult {
    int status;       // exit status; 128 + signal number if a signal killed it
    std::string out;  // standard output
    std::string err;  // standard error
};

// Number of lines in the text, including an unterminated last line.
inline int count_lines(const std::string& text) {
    int lines = 0;
    for (char c : text) lines += c == '\n';
    return lines + (!text.empty() && text.back() != '\n');
}

// A signal to send to the program, either once it has printed some text or after some time.
struct SendSignal {
    int number = 0;  // 0: none
    std::string when_printed;
    double after_seconds = 0;
};

// Reads both pipes until both are closed, so a program that fills one of them does not hang. Sends the signal
// to the process `child`.
inline void collect_output(int out_pipe, int err_pipe, ProgramResult& result, pid_t child = 0,
                           SendSignal signal = {}) {
    pollfd pipes[2] = {{out_pipe, POLLIN, 0}, {err_pipe, POLLIN, 0}};
    std::string* texts[2] = {&result.out, &result.err};
    const auto start = std::chrono::steady_clock::now();
    auto seconds_left = [&] {
        return signal.after_seconds -
               std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    while (pipes[0].fd >= 0 || pipes[1].fd >= 0) {
        const bool by_time = signal.number && signal.when_printed.empty();
        const int polled = poll(pipes, 2, by_time ? std::max(0, int(seconds_left() * 1e3)) : -1);
        for (int i = 0; i < 2 && polled >= 0; i++) {  // < 0: interrupted by a signal
            if (pipes[i].fd < 0 || !pipes[i].revents) continue;
            char chunk[4096];
            ssize_t count = read(pipes[i].fd, chunk, sizeof(chunk));
            if (count > 0) texts[i]->append(chunk, size_t(count));
            if (count <= 0) pipes[i].fd = -1;
        }
        const bool due =
            by_time ? seconds_left() <= 1e-3 : result.out.find(signal.when_printed) != std::string::npos;
        if (signal.number && due) {
            kill(child, signal.number);
            signal.number = 0;
        }
    }
}

// A test that a script runs in the background ignores SIGINT, and so would the programs that it interrupts.
inline const auto sigint_before = std::signal(SIGINT, SIG_DFL);

// Runs argv[0] (a path, or a name in PATH) with the arguments argv[1...] and waits for it to exit.
inline ProgramResult run_program(std::vector<std::string> argv, const SendSignal& signal = {}) {
    for (const char* name : {"GTEST_SHARD_INDEX", "GTEST_TOTAL_SHARDS"}) unsetenv(name);  // this test's own
    int out_pipe[2], err_pipe[2];
    if (pipe2(out_pipe, O_CLOEXEC) != 0 || pipe2(err_pipe, O_CLOEXEC) != 0)
        throw std::runtime_error("no pipe");
    if (signal.number) fcntl(out_pipe[1], F_SETPIPE_SZ, 4096);  // the program waits until its output is seen
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out_pipe[1], 1);
    posix_spawn_file_actions_adddup2(&actions, err_pipe[1], 2);
    std::vector<char*> arguments;
    for (std::string& argument : argv) arguments.push_back(argument.data());
    arguments.push_back(nullptr);
    pid_t child = 0;
    int error = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(out_pipe[1]);
    close(err_pipe[1]);
    ProgramResult result = {127, "", ""};
    if (!error) collect_output(out_pipe[0], err_pipe[0], result, child, signal);
    close(out_pipe[0]);
    close(err_pipe[0]);
    if (error) throw std::runtime_error("cannot start " + argv[0] + ": " + strerror(error));
    int status = 0;
    waitpid(child, &status, 0);
    result.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return result;
}

// For `env`, before programs that use MPI: its library leaks. Otherwise as in the preset "sanitize".
inline const char* const WITHOUT_LEAK_CHECK = "ASAN_OPTIONS=detect_leaks=0:exitcode=99";

// The losses that train_gpt2 prints, as in "step    3/12 | loss 4.123456 |"; main.log has fewer digits.
inline std::vector<double> printed_losses(const std::string& out) {
    std::vector<double> found;
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);) {
        int step, steps;
        double loss;
        if (sscanf(line.c_str(), "step %d/%d | loss %lf", &step, &steps, &loss) == 3) found.push_back(loss);
    }
    return found;
}

// TMPDIR if it is set, else a folder in memory if there is room for a package's root: tests write hundreds of
// checkpoints, and flushing them to a disk takes longer than all else.
inline std::filesystem::path temporary_folders() {
    const std::filesystem::path memory = "/dev/shm";
    const bool has_room =
        access(memory.c_str(), W_OK) == 0 && std::filesystem::space(memory).available > 2'000'000'000;
    return !getenv("TMPDIR") && has_room ? memory : std::filesystem::temp_directory_path();
}

// A new folder for one test's files; the destructor deletes it with its contents.
struct TemporaryFolder {
    std::string path;
    TemporaryFolder() {
        std::string name = (temporary_folders() / "test-XXXXXX").string();
        if (!mkdtemp(name.data())) throw std::runtime_error("cannot make a temporary folder");
        path = name;
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    std::string operator/(const std::string& name) const { return path + "/" + name; }
};
