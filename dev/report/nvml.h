// What NVIDIA's management library tells of a GPU's power. It is opened when the program runs; a machine
// without it has no such figures. The few functions are declared here, since the library's header is not part
// of systems.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "llmc/device.h"

// What can be read of one GPU; functions give NaN where the library answers with an error.
struct NvmlGpu {
    std::function<double()> joules;  // used since some moment in the past; empty: the GPU does not count
    std::function<double()> watts;   // at present
    explicit operator bool() const { return bool(watts); }
};

// The GPU at the Vulkan device's PCI address, or else the only one of the device's name. None where the
// library or the GPU is not there, or several have the name.
NvmlGpu find_nvml_gpu(const DeviceInfo& device, const std::string& library = "libnvidia-ml.so.1");
