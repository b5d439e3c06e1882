// Wall-clock time, for durations.
#pragma once
#include <chrono>

// Seconds since some moment; never set back.
inline double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
