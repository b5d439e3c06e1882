#include "llmc/cpu/cpu_timer.h"

#include <algorithm>

#include "llmc/base/clock.h"

static bool times_are_kept = false;
static std::vector<KernelTime> times;

void keep_cpu_times(bool on) { times_are_kept = on; }

std::vector<KernelTime> take_cpu_times() {
    std::vector<KernelTime> taken;
    taken.swap(times);
    std::sort(taken.begin(), taken.end(),
              [](const KernelTime& a, const KernelTime& b) { return a.seconds > b.seconds; });
    return taken;
}

CpuTimer::CpuTimer(const char* name, Work work, std::initializer_list<int> sizes) : done(work) {
    if (!times_are_kept) return;
    key = name;
    const char* separator = " ";
    for (int size : sizes) {
        key += separator + std::to_string(size);
        separator = " x ";
    }
    start = now();
}

CpuTimer::~CpuTimer() {
    if (key.empty()) return;
    const double seconds = now() - start;
    auto found = std::find_if(times.begin(), times.end(), [&](const KernelTime& t) { return t.name == key; });
    if (found == times.end()) found = times.insert(times.end(), KernelTime{key});
    found->calls++;
    found->seconds += seconds;
    found->work.bytes += done.bytes;
    found->work.flops += done.flops;
}
