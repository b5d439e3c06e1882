// The power that a device draws while something runs on it, if the system reports it: NVML, the sensors of
// GPU drivers (hwmon), or the processor's energy counters (RAPL). Energy counters are preferred to power
// samples.
#pragma once
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "dev/report/nvml.h"

// Where to read a device's energy or power. At most one function is set; it returns NaN if reading fails.
struct PowerSource {
    std::string name;                // for readers: "NVML, energy counter"
    std::function<double()> joules;  // a monotonic energy counter
    std::function<double()> watts;   // present power
    explicit operator bool() const { return joules || watts; }
};

// device: null for the CPU. The CPU, software devices, and integrated GPUs whose driver has no sensor report
// the sum of all processor packages. system: the path of /sys. nvml: the GPU in NVML, if any. None if nothing
// reports power, or several sensors match.
PowerSource find_power_source(const DeviceInfo* device, const std::string& system, const NvmlGpu& nvml);
PowerSource find_power_source(const DeviceInfo* device);  // on this machine

struct Energy {
    double joules, seconds;
    double watts() const { return joules / seconds; }
};

// Measures energy between start() and stop(); a thread reads the source every 20 ms.
struct PowerMeter {
    explicit PowerMeter(PowerSource power_source) : source(std::move(power_source)) {}
    ~PowerMeter() { stop(); }
    PowerMeter(const PowerMeter&) = delete;

    void start();
    // None if there is no source, a reading failed, or the time was too short for the counter to advance.
    std::optional<Energy> stop();

    PowerSource source;

   private:
    void sample();
    std::thread thread;
    std::atomic<bool> running{false};
    double start_time = 0, last_time = 0, first_joules = 0, last_watts = 0;
    double sum = 0;  // joules so far
};
