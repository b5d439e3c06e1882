// NVIDIA's management library, opened at run time: see nvml.h.
#include "dev/report/nvml.h"

#include <cmath>
#include <vector>

#include "llmc/base/os.h"

using Handle = struct NvmlDevice*;
using Status = int;  // 0: success

// Initializes the library for the lifetime of the object. The library stays open.
struct Nvml {
    void* library;
    bool ready;

    template <class Function>
    Function* find(const char* symbol) const {
        return library ? reinterpret_cast<Function*>(find_in_library(library, symbol)) : nullptr;
    }
    Status (*init)() = find<Status()>("nvmlInit_v2");
    Status (*shutdown)() = find<Status()>("nvmlShutdown");
    Status (*count)(unsigned*) = find<Status(unsigned*)>("nvmlDeviceGetCount_v2");
    Status (*by_index)(unsigned, Handle*) = find<Status(unsigned, Handle*)>("nvmlDeviceGetHandleByIndex_v2");
    Status (*by_pci)(const char*,
                     Handle*) = find<Status(const char*, Handle*)>("nvmlDeviceGetHandleByPciBusId_v2");
    Status (*name)(Handle, char*, unsigned) = find<Status(Handle, char*, unsigned)>("nvmlDeviceGetName");
    Status (*millijoules)(Handle, unsigned long long*) =  // null in old versions
        find<Status(Handle, unsigned long long*)>("nvmlDeviceGetTotalEnergyConsumption");
    Status (*milliwatts)(Handle, unsigned*) = find<Status(Handle, unsigned*)>("nvmlDeviceGetPowerUsage");

    explicit Nvml(const std::string& path) : library(open_library(path.c_str())) {
        ready = init && shutdown && count && by_index && by_pci && name && milliwatts && init() == 0;
    }
    ~Nvml() {
        if (ready) shutdown();
    }
    Nvml(const Nvml&) = delete;

    double joules(Handle gpu) const {
        unsigned long long used = 0;
        return millijoules && millijoules(gpu, &used) == 0 ? 1e-3 * double(used) : NAN;
    }
    double watts(Handle gpu) const {
        unsigned present = 0;
        return milliwatts(gpu, &present) == 0 ? 1e-3 * present : NAN;
    }
};

static Handle find_gpu(const Nvml& nvml, const DeviceInfo& device) {
    Handle found = nullptr;
    if (!device.pci.empty() && nvml.by_pci(device.pci.c_str(), &found) == 0) return found;
    unsigned gpus = 0;
    if (nvml.count(&gpus) != 0) return nullptr;
    std::vector<Handle> named;
    for (unsigned i = 0; i < gpus; i++) {
        char name[96] = "";  // the library's maximum
        Handle gpu = nullptr;
        if (nvml.by_index(i, &gpu) == 0 && nvml.name(gpu, name, sizeof(name)) == 0 && device.name == name)
            named.push_back(gpu);
    }
    return named.size() == 1 ? named[0] : nullptr;
}

NvmlGpu find_nvml_gpu(const DeviceInfo& device, const std::string& library) {
    const auto nvml = std::make_shared<Nvml>(library);
    if (!nvml->ready && library == nvml_libraries[0]) return find_nvml_gpu(device, nvml_libraries[1]);
    if (!nvml->ready) return {};
    Handle gpu = find_gpu(*nvml, device);
    if (!gpu || !std::isfinite(nvml->watts(gpu))) return {};
    NvmlGpu readings;
    if (std::isfinite(nvml->joules(gpu))) readings.joules = [=] { return nvml->joules(gpu); };
    readings.watts = [=] { return nvml->watts(gpu); };
    return readings;
}
