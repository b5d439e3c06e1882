// The power that a device takes while something runs on it, where the system tells it: NVIDIA's library, the
// sensors of GPU drivers (hwmon), the processor's energy counters (RAPL). What is counted in joules is
// preferred to what is sampled in watts.
#pragma once
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "dev/report/nvml.h"

// Where a device's energy is read. One of the two functions is set, or none; they give NaN where reading
// fails.
struct PowerSource {
    std::string name;                // for people: "NVML, energy counter"
    std::function<double()> joules;  // a counter that only grows
    std::function<double()> watts;   // at present
    explicit operator bool() const { return joules || watts; }
};

// device: null for the CPU, whose packages are taken together, as they are for software devices and, where
// the driver has no sensor, for integrated GPUs. system: where /sys lies. nvml: the GPU in NVIDIA's library,
// if any. None where nothing tells, or where several sensors could be meant.
PowerSource find_power_source(const DeviceInfo* device, const std::string& system, const NvmlGpu& nvml);
PowerSource find_power_source(const DeviceInfo* device);  // of this machine

struct Energy {
    double joules, seconds;
    double watts() const { return joules / seconds; }
};

// Measures between start() and stop(); a thread reads the source every 20 ms meanwhile.
struct PowerMeter {
    explicit PowerMeter(PowerSource power_source) : source(std::move(power_source)) {}
    ~PowerMeter() { stop(); }
    PowerMeter(const PowerMeter&) = delete;

    void start();
    // None where there is no source, a reading failed, or nothing was counted in so short a time.
    std::optional<Energy> stop();

    PowerSource source;

   private:
    void watch();
    std::thread thread;
    std::atomic<bool> running{false};
    double start_time = 0, last_time = 0, first_joules = 0, last_watts = 0;
    double sum = 0;  // joules so far
};
