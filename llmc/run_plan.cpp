// Memory that there is and peaks: see run_plan.h.
#include "llmc/run_plan.h"

#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <fstream>

#include "llmc/peak_cpu.h"

static std::string gib(uint64_t bytes) { return format_string("%.1f GiB", double(bytes) / (1 << 30)); }

// What Linux says is available, within what the container may have; elsewhere all memory.
static uint64_t host_memory() {
    uint64_t bytes = uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE)), found;
    std::ifstream info("/proc/meminfo");
    for (std::string line; std::getline(info, line);)
        if (sscanf(line.c_str(), "MemAvailable: %" SCNu64, &found) == 1) bytes = found * 1024;
    std::ifstream container("/sys/fs/cgroup/memory.max");
    if (container >> found) bytes = std::min(bytes, found);
    return bytes;
}

MemoryRoom memory_room(const LaunchPad* pad) {
    if (!pad) return {host_memory(), ~uint64_t(0), "this machine"};
    MemoryRoom room = {pad->device().free_bytes, pad->limits().max_allocation, pad->device().name};
    // what an integrated one calls its own may be a small part of the memory that it shares with the host
    if (pad->device().type == DeviceType::integrated) room.bytes = std::max(room.bytes, host_memory());
    if (pad->device().type == DeviceType::software) room.bytes = std::min(room.bytes, host_memory());
    return room;
}

int largest_batch(const std::function<MemoryNeed(int B)>& need, const MemoryRoom& room, int T) {
    int fits = 0, too_large = 1;
    const int most = (1 << 30) / T;  // check_options() allows no more
    while (too_large <= most && room.holds(need(too_large))) {
        fits = too_large;
        too_large *= 2;
    }
    too_large = std::min(too_large, most + 1);
    while (too_large - fits > 1) {
        const int middle = fits + (too_large - fits) / 2;
        (room.holds(need(middle)) ? fits : too_large) = middle;
    }
    return fits;
}

void check_memory(const std::function<MemoryNeed(int B)>& need, const MemoryRoom& room, int B, int T,
                  int total_batch) {
    const MemoryNeed needed = need(B);
    if (room.holds(needed)) return;
    int fits = largest_batch(need, room, T);
    while (total_batch > 0 && fits > 1 && total_batch % (int64_t(fits) * T)) fits--;
    const std::string missing =
        needed.bytes > room.bytes
            ? format_string("-b %d takes %s, and %s has %s free", B, gib(needed.bytes).c_str(),
                            room.where.c_str(), gib(room.bytes).c_str())
            : format_string("-b %d takes one piece of %s, and %s allocates at most %s at a time", B,
                            gib(needed.largest).c_str(), room.where.c_str(), gib(room.largest).c_str());
    if (fits == 0)
        fail("out of memory: %s; not even -b 1 fits: use a smaller -t or -e, -r 2, or --precision bf16",
             missing.c_str());
    fail("out of memory: %s; use -b %d (with -d %lld the steps stay the same), or -r 2, or --precision bf16",
         missing.c_str(), fits, (long long)(total_batch > 0 ? total_batch : int64_t(B) * T));
}

double flops_per_token(const ModelConfig& c, int T) {
    return 6.0 * double(num_parameters(c)) + 6.0 * c.num_layers * double(c.channels) * T;
}

template <class Real>
double peak_rate(LaunchPad* pad) {
    const bool bf16_numbers = std::is_same_v<Real, bf16>, fp16_numbers = std::is_same_v<Real, fp16>;
    if (!pad || pad->device().type == DeviceType::software)
        return std::max(cpu_fma_rate(0.5), bf16_numbers && !pad ? cpu_bf16_rate(0.5) : 0.0);
    try {
        const Peaks peaks = measure_peaks(*pad);
        const double matrix = bf16_numbers   ? peaks.bf16_matrix_rate
                              : fp16_numbers ? peaks.fp16_matrix_rate
                                             : 0;
        return std::max(matrix, peaks.fma_rate);
    } catch (const Error&) {  // too little memory
        return 0;
    }
}
template double peak_rate<float>(LaunchPad*);
template double peak_rate<bf16>(LaunchPad*);
template double peak_rate<fp16>(LaunchPad*);
