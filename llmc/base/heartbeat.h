// Shows that this process makes progress while other processes of its job wait for it: they wait for as long
// as it reads or writes files. See distributed/watch.h.
#pragma once
#include <atomic>
#include <cstdint>

inline std::atomic<uint64_t> heartbeats{0};
