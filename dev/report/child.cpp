// Runs another program: see child.h.
#include "dev/report/child.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "llmc/base/clock.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/os/signals.h"

extern char** environ;

struct Pipe {
    int ends[2] = {-1, -1};  // read end, write end
    Pipe() {
        if (pipe(ends) != 0) fail("cannot create a pipe: %s", strerror(errno));
        for (int end : ends) fcntl(end, F_SETFD, FD_CLOEXEC);
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
    }
    ~Pipe() {
        close(ends[0]);
        close_writer();
    }
    void close_writer() {
        if (ends[1] >= 0) close(ends[1]);
        ends[1] = -1;
    }
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;
};

// Appends what can be read without blocking.
static void drain(const Pipe& from, std::string& text) {
    char chunk[4096];
    for (ssize_t count; (count = read(from.ends[0], chunk, sizeof(chunk))) > 0;)
        text.append(chunk, size_t(count));
}

// An unnamed file that holds the input: unlike a pipe it cannot fill up.
static File input_file(const std::string& input) {
    File file(tmpfile());
    if (!file || fwrite(input.data(), 1, input.size(), file.get()) != input.size() || fflush(file.get()) != 0)
        fail("cannot write a temporary file: %s", strerror(errno));
    rewind(file.get());
    return file;
}

static pid_t spawn(std::vector<std::string>& argv, const std::string& input, Pipe& out, Pipe& err) {
    const File file = input_file(input);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fileno(file.get()), 0);
    posix_spawn_file_actions_adddup2(&actions, out.ends[1], 1);
    posix_spawn_file_actions_adddup2(&actions, err.ends[1], 2);
    std::vector<char*> arguments;
    for (std::string& argument : argv) arguments.push_back(argument.data());
    arguments.push_back(nullptr);
    pid_t child = 0;
    const int error = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    out.close_writer();
    err.close_writer();
    if (error) fail("cannot start %s: %s", argv[0].c_str(), strerror(error));
    return child;
}

// Waits for output, the end of the child, or 20 ms.
static void wait_for_output(const Pipe& out, const Pipe& err) {
    pollfd pipes[2] = {{out.ends[0], POLLIN, 0}, {err.ends[0], POLLIN, 0}};
    if (poll(pipes, 2, 20) > 0 && !((pipes[0].revents | pipes[1].revents) & POLLIN))
        usleep(5000);  // both are closed
}

ChildResult run_child(std::vector<std::string> argv, double limit, const std::string& input,
                      const std::function<void(const std::string&)>& on_line) {
    Pipe out, err;
    ChildResult result;
    const double start = now();
    const pid_t child = spawn(argv, input, out, err);
    size_t reported = 0;  // characters of err that on_line has seen
    int status = 0;
    bool ended = false, stopped = false;
    while (!ended) {
        wait_for_output(out, err);
        // Before reading, so that the last output is not lost. The pipes may stay open in a grandchild.
        ended = waitpid(child, &status, WNOHANG) == child;
        drain(out, result.out);
        drain(err, result.err);
        for (size_t end; on_line && (end = result.err.find('\n', reported)) != std::string::npos;
             reported = end + 1)
            on_line(result.err.substr(reported, end - reported));
        result.seconds = now() - start;
        stopped = stop_signal() != 0;
        if (ended || (!stopped && result.seconds < limit)) continue;
        result.timed_out = !stopped;
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        ended = true;
    }
    if (stopped) fail("stopped by signal %d", stop_signal());
    result.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return result;
}

std::string command_text(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) {
        if (!text.empty()) text += ' ';
        text += printable(shell_word(word));
    }
    return text;
}
