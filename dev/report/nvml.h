// A GPU's power as NVIDIA's management library (NVML) reports it. The library is opened at run time and may
// be missing. Its few functions are declared here, since most systems do not have its header.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "llmc/launchpad/device.h"

// The readings of one GPU; the functions return NaN if the library reports an error.
struct NvmlGpu {
    std::function<double()>
        joules;                     // energy used since some point in the past; empty: the GPU has no counter
    std::function<double()> watts;  // present power
    explicit operator bool() const { return bool(watts); }
};

inline const char* const nvml_libraries[] = {"libnvidia-ml.so.1", "nvml.dll"};  // Linux, Windows

// The GPU at the Vulkan device's PCI address, or else the only one with the device's name. None if the
// library or the GPU is missing, or several GPUs have the name.
NvmlGpu find_nvml_gpu(const DeviceInfo& device, const std::string& library = nvml_libraries[0]);
