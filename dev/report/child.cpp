// Running another program: see child.h.
#include "dev/report/child.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "llmc/clock.h"
#include "llmc/error.h"
#include "llmc/file.h"
#include "llmc/stop_signal.h"

extern char** environ;

struct Pipe {
    int ends[2] = {-1, -1};  // to read from, to write to
    Pipe() {
        if (pipe(ends) != 0) fail("cannot make a pipe: %s", strerror(errno));
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

// Appends what is there to be read.
static void drain(const Pipe& from, std::string& text) {
    char chunk[4096];
    for (ssize_t count; (count = read(from.ends[0], chunk, sizeof(chunk))) > 0;)
        text.append(chunk, size_t(count));
}

// A file without a name that holds the input, from its start: a pipe could fill up.
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

// Waits for an end of the child or news in the pipes, a little while at most.
static void wait_for_news(const Pipe& out, const Pipe& err) {
    pollfd pipes[2] = {{out.ends[0], POLLIN, 0}, {err.ends[0], POLLIN, 0}};
    if (poll(pipes, 2, 20) > 0 && !((pipes[0].revents | pipes[1].revents) & POLLIN)) usleep(5000);  // closed
}

ChildResult run_child(std::vector<std::string> argv, double limit, const std::string& input,
                      const std::function<void(const std::string&)>& on_line) {
    Pipe out, err;
    ChildResult result;
    const double start = now();
    const pid_t child = spawn(argv, input, out, err);
    size_t told = 0;  // characters of err that on_line saw
    int status = 0;
    bool ended = false, stopped = false;
    while (!ended) {
        wait_for_news(out, err);
        // looked at first: what the child wrote before its end is read below. A grandchild may keep the pipes
        ended = waitpid(child, &status, WNOHANG) == child;
        drain(out, result.out);
        drain(err, result.err);
        for (size_t end; on_line && (end = result.err.find('\n', told)) != std::string::npos; told = end + 1)
            on_line(result.err.substr(told, end - told));
        result.seconds = now() - start;
        stopped = stop_signal() != 0;
        if (ended || (!stopped && result.seconds < limit)) continue;
        result.overran = !stopped;
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        ended = true;
    }
    if (stopped) fail("stopped by signal %d", stop_signal());
    result.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return result;
}
