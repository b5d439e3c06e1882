// Starts programs with posix_spawnp(): see process.h.
#include "llmc/base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>

#include "llmc/base/signals.h"

extern char** environ;

// One end of the pipes of standard output and of standard error; -1: closed.
struct PipeEnds {
    int ends[2] = {-1, -1};

    ~PipeEnds() {
        for (const int i : {0, 1}) shut(i);
    }
    int& operator[](int i) { return ends[i]; }
    void shut(int i) {
        if (ends[i] >= 0) close(ends[i]);
        ends[i] = -1;
    }
};

struct Process::Internals {
    pid_t child = 0;
    bool ended = false;
    PipeEnds pipes;  // read ends
};

// Sets the ends of a new pipe, which other programs do not inherit.
static void open_pipe(int& read_end, int& write_end) {
    int ends[2];
    if (pipe(ends) != 0) throw std::system_error(errno, std::generic_category(), "cannot create a pipe");
    for (const int end : ends) fcntl(end, F_SETFD, FD_CLOEXEC);
#ifdef F_SETPIPE_SZ
    fcntl(ends[1], F_SETPIPE_SZ, 4096);  // the program is never far ahead of what is read
#endif
    read_end = ends[0];
    write_end = ends[1];
}

// For posix_spawnp(), as long as argv lives.
static std::vector<char*> words_of(const std::vector<std::string>& argv) {
    std::vector<char*> words;
    for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    return words;
}

// A program whose parent ignores the signal of their ends gets no status of its children.
static void keep_ends_of_children() {
    struct sigaction action = {};
    sigaction(SIGCHLD, nullptr, &action);
    if (action.sa_handler == SIG_IGN) signal(SIGCHLD, SIG_DFL);
}

Process::Process(std::vector<std::string> argv, FILE* input) : internals(std::make_unique<Internals>()) {
    PipeEnds write_ends;
    for (const int i : {0, 1}) open_pipe(internals->pipes[i], write_ends[i]);
    const std::vector<char*> words = words_of(argv);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (input)
        posix_spawn_file_actions_adddup2(&actions, fileno(input), 0);
    else
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    for (const int i : {0, 1}) posix_spawn_file_actions_adddup2(&actions, write_ends[i], i + 1);
    keep_ends_of_children();
    const int error = posix_spawnp(&internals->child, words[0], &actions, nullptr, words.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error) throw std::system_error(error, std::generic_category(), "cannot start " + argv[0]);
}

Process::~Process() {
    kill();
    wait();
}

bool Process::read(std::string& out, std::string& err, double seconds) {
    pollfd waiting[2] = {{internals->pipes[0], POLLIN, 0}, {internals->pipes[1], POLLIN, 0}};
    std::string* texts[2] = {&out, &err};
    if (waiting[0].fd < 0 && waiting[1].fd < 0) return false;
    if (poll(waiting, 2, int(seconds * 1e3)) <= 0) return true;  // also if a signal interrupts it
    for (const int i : {0, 1}) {
        if (!waiting[i].revents) continue;
        char chunk[4096];
        const ssize_t count = ::read(waiting[i].fd, chunk, sizeof chunk);
        if (count > 0) texts[i]->append(chunk, size_t(count));
        if (count > 0 || (count < 0 && errno == EINTR)) continue;
        internals->pipes.shut(i);
    }
    return internals->pipes[0] >= 0 || internals->pipes[1] >= 0;
}

void Process::kill() { send(SIGKILL); }

void Process::send(int signal) {
    if (!internals->ended) ::kill(internals->child, signal);
}

static int status_of(int status) {
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool Process::has_ended() {
    int code = 0;
    if (!internals->ended && waitpid(internals->child, &code, WNOHANG) == internals->child) {
        internals->ended = true;
        status = status_of(code);
    }
    return internals->ended;
}

int Process::wait() {
    int code = 0;
    if (internals->ended) return status;
    while (waitpid(internals->child, &code, 0) < 0 && errno == EINTR) {
    }
    internals->ended = true;
    return status = status_of(code);
}

// Ends of pipes become standard input, and standard output and standard error.
static pid_t start_in_group(const std::vector<std::string>& argv, int input, PipeEnds& outputs) {
    const std::vector<char*> words = words_of(argv);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input, 0);
    for (const int i : {0, 1}) posix_spawn_file_actions_adddup2(&actions, outputs[i], i + 1);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    pid_t child = 0;
    const int error = posix_spawnp(&child, words[0], &actions, &attributes, words.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (error) throw std::system_error(error, std::generic_category());
    return child;
}

// Copies what a job prints, once standard output or standard error takes it. Waits for up to 20 ms. Returns
// whether there was anything, or the end.
static bool pass_output_on(PipeEnds& outputs) {
    FILE* const streams[2] = {stdout, stderr};
    pollfd waiting[2] = {{outputs[0], POLLIN, 0}, {outputs[1], POLLIN, 0}};
    if (poll(waiting, 2, 20) <= 0) return false;
    for (const int i : {0, 1}) {
        pollfd stream = {fileno(streams[i]), POLLOUT, 0};
        if (!waiting[i].revents || poll(&stream, 1, 20) == 0) continue;
        char chunk[4096];
        const ssize_t count = read(outputs[i], chunk, sizeof chunk);
        if (count == 0 || (count < 0 && errno != EINTR)) outputs.shut(i);
        if (count <= 0) continue;
        fwrite(chunk, 1, size_t(count), streams[i]);  // the program's end reports an error
        fflush(streams[i]);
    }
    return true;
}

// In a process of its own: when the program has been killed, which closes `life`, continues the job, which
// Ctrl-Z may have stopped, and passes SIGTERM on. Open MPI 5 does not pass on the end of the input.
[[noreturn]] static void outlive(PipeEnds& life, pid_t job, int input, PipeEnds& outputs) {
    setpgid(0, 0);  // a shell kills the whole group
    life.shut(1);
    char byte;
    while (read(life[0], &byte, 1) < 0 && errno == EINTR) {
    }
    kill(job, SIGCONT);
    byte = SIGTERM;
    [[maybe_unused]] const ssize_t written = write(input, &byte, 1);
    while (outputs[0] >= 0 || outputs[1] >= 0) pass_output_on(outputs);
    _exit(0);
}

int run_instead(const std::vector<std::string>& argv,
                const std::vector<std::pair<std::string, std::string>>& environment) {
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 0);
    fflush(nullptr);
    keep_ends_of_children();
    catch_stop_signals();
    catch_save_signal();
    static volatile sig_atomic_t child = 0, suspends = 0;
    if (signal(SIGTSTP, [](int) { suspends = 1; }) == SIG_IGN) signal(SIGTSTP, SIG_IGN);
    PipeEnds pipe, life, outputs, write_ends;
    for (PipeEnds* ends : {&pipe, &life}) open_pipe((*ends)[0], (*ends)[1]);
    for (const int i : {0, 1}) open_pipe(outputs[i], write_ends[i]);
    const auto pass = [&](int number) {
        const char byte = char(number);
        [[maybe_unused]] const ssize_t written = write(pipe[1], &byte, 1);
    };
    pass(0);
    child = start_in_group(argv, pipe[0], write_ends);
    for (const int i : {0, 1}) write_ends.shut(i);
    at_second_stop_signal([](int) { kill(-child, SIGTERM); });
    const pid_t survivor = fork();
    if (survivor == 0) outlive(life, child, pipe[1], outputs);
    int status = 0, passed = 0;
    pid_t ended;
    while ((ended = waitpid(child, &status, WNOHANG)) == 0) {
        pass_output_on(outputs);
        if (!passed && (passed = stop_signal())) pass(passed);
        if (take_save_request()) pass(SIGUSR1);
        if (suspends) {  // by Ctrl-Z, until fg or bg
            kill(child, SIGTSTP);
            raise(SIGSTOP);
            suspends = 0;
            kill(child, SIGCONT);
        }
    }
    while (pass_output_on(outputs)) {  // what is left
    }
    if (survivor > 0 && kill(survivor, SIGKILL) == 0) waitpid(survivor, nullptr, 0);
    if (ended < 0) throw std::system_error(errno, std::generic_category());
    if (passed) return 128 + passed;
    return status_of(status);
}
