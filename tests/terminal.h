// Runs a program on a pseudo-terminal, with lines typed to it.
#pragma once
#include <gtest/gtest.h>

#include "tests/run_program.h"

#ifdef _WIN32
inline std::string shown_on_terminal(Words, const char*, const std::string& = "") {
    return "";  // a pseudo-terminal of Windows shows a screen, not what the program has written
}
#else
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <termios.h>

// All that the program shows, on a terminal of that type (TERM); empty without pseudo-terminals. Each line of
// `typed` is sent once the program asks for one with "> ". Kills the program after a minute of silence.
inline std::string shown_on_terminal(Words command, const char* type, const std::string& typed = "") {
    std::vector<char*> argv;
    for (std::string& word : command) argv.push_back(word.data());
    argv.push_back(nullptr);
    int terminal = -1;
    const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
    if (child == 0) {
        setenv("TERM", type, 1);
        setenv("HOME", "/nonexistent", 1);  // no ~/.editrc
        execv(argv[0], argv.data());
        _exit(127);
    }
    if (child < 0) return "";
    std::string shown;
    char chunk[4096];
    size_t sent = 0, shown_before = 0;
    auto asks_for_line =
        [&] {  // what is typed before the editor has changed the terminal's mode can get lost
            termios mode;
            return shown.size() > shown_before && shown.ends_with("> ") && tcgetattr(terminal, &mode) == 0 &&
                   !(mode.c_lflag & ICANON);
        };
    for (int silences = 0; silences < 6000;) {
        pollfd waiting = {terminal, POLLIN, 0};
        if (poll(&waiting, 1, 10) == 0) {
            if (++silences == 6000) kill(child, SIGKILL);
        } else {
            const ssize_t count = read(terminal, chunk, sizeof chunk);
            if (count <= 0) break;
            shown.append(chunk, size_t(count));
        }
        if (sent < typed.size() && asks_for_line()) {
            const size_t end = std::min(typed.find('\n', sent), typed.size() - 1) + 1;
            EXPECT_EQ(write(terminal, &typed[sent], end - sent), ssize_t(end - sent));
            shown_before = shown.size();
            sent = end;
        }
    }
    close(terminal);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << shown;
    return shown;
}
#endif
