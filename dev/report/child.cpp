// Runs another program: see child.h.
#include "dev/report/child.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>

#include "dev/report/process.h"
#include "llmc/base/clock.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/os.h"
#include "llmc/base/signals.h"

// An unnamed file that holds the input: unlike a pipe it cannot fill up.
static File input_file(const std::string& input) {
    File file(tmpfile());
    if (!file || fwrite(input.data(), 1, input.size(), file.get()) != input.size() || fflush(file.get()) != 0)
        fail("cannot write a temporary file: %s", strerror(errno));
    rewind(file.get());
    return file;
}

static std::unique_ptr<Process> start_child(const std::vector<std::string>& argv, FILE* input) {
    try {
        return std::make_unique<Process>(argv, input);
    } catch (const std::system_error& error) {
        fail("%s", error.what());
    }
}

ChildResult run_child(std::vector<std::string> argv, double limit, const std::string& input,
                      const std::function<void(const std::string&)>& on_line) {
    ChildResult result;
    const double start = now();
    const File file = input_file(input);
    const std::unique_ptr<Process> child = start_child(argv, file.get());
    size_t reported = 0;  // characters of err that on_line has seen
    bool ended = false, stopped = false;
    while (!ended) {
        // Before reading, so that the last output is not lost. The pipes may stay open in a grandchild.
        ended = child->has_ended();
        size_t before;
        do {
            before = result.out.size() + result.err.size();
            if (!child->read(result.out, result.err, ended ? 0 : 0.02) && !ended)
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
        } while (ended && result.out.size() + result.err.size() > before);
        for (size_t end; on_line && (end = result.err.find('\n', reported)) != std::string::npos;
             reported = end + 1)
            on_line(result.err.substr(reported, end - reported));
        result.seconds = now() - start;
        stopped = stop_signal() != 0;
        if (ended || (!stopped && result.seconds < limit)) continue;
        result.timed_out = !stopped;
        child->kill();
        ended = true;
    }
    if (stopped) fail("stopped by signal %d", stop_signal());
    result.status = child->wait();
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
