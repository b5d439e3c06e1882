// Time, for measuring durations.
#pragma once
#include <chrono>

// Seconds since an arbitrary moment. Never decreases.
inline double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
