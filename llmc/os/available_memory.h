// How much more memory this process may take.
#pragma once
#include <cstdint>
#include <string>

// What Linux reports as available, at most what the limits leave: those of the process (ulimit -v, -d) and of
// its control groups, version 1 or 2, and all groups above them. On macOS, all memory; on Windows, what the
// system reports as available. `root` stands for / where the control groups are looked up, for tests.
uint64_t available_memory(const std::string& root = "");

// The same, less what a program takes besides its tensors: buffers of kernels, stacks of threads, libraries.
inline uint64_t memory_for_tensors() {
    const uint64_t available = available_memory(), others = 32 << 20;
    return available > others ? available - others : 0;
}
