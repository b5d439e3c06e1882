// How much memory this process takes, and how much it may still take.
#pragma once
#include <cstdint>
#include <string>

// What Linux reports as available, at most what the limits leave: those of the process (ulimit -v, -d) and of
// its control groups, version 1 or 2, and all groups above them. On macOS, all memory; on Windows, what the
// system reports as available. `root` stands for / where the control groups are looked up, for tests.
uint64_t available_memory(const std::string& root = "");

uint64_t resident_memory();  // of this process, bytes; 0 if the system does not report it
