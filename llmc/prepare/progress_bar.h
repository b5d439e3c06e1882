// A progress bar on standard error; prints nothing if that is not a terminal.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "llmc/os/os.h"

struct ProgressBar {
    using Clock = std::chrono::steady_clock;
    bool terminal = is_terminal(stderr);
    Clock::time_point start = Clock::now(), last = start;

    // `done` of `total` bytes (0: unknown) are processed. Draws at most five times per second.
    void show(uint64_t done, uint64_t total) {
        const auto now = Clock::now();
        if (!terminal || now - last < std::chrono::milliseconds(200)) return;
        last = now;
        const double seconds = std::chrono::duration<double>(now - start).count(),
                     rate = double(done) / seconds;
        if (!total) {
            fprintf(stderr, "\r%.1f MB, %.1f MB/s \x1b[K", 1e-6 * double(done), 1e-6 * rate);
            return;
        }
        done = std::min(done, total);  // a file may grow while it is read
        const double share = double(done) / double(total);
        const int width = 40, filled = int(share * width);
        const long left = long(double(total - done) / rate);
        fprintf(stderr, "\r[%s%s] %3.0f%%, %.1f MB/s, %ld:%02ld left \x1b[K",
                std::string(filled, '#').c_str(), std::string(width - filled, ' ').c_str(), 100 * share,
                1e-6 * rate, left / 60, left % 60);
    }
    ~ProgressBar() {  // clears the line, also after an error
        if (terminal && last != start) fprintf(stderr, "\r\x1b[K");
    }
};
