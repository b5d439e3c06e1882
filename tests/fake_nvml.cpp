// A fake of NVIDIA's management library for tests/power_test.cpp: three GPUs, two of the same name. The GPU
// at index i draws 100 (i + 1) W, and its energy counter advances by 1 kJ at each reading.
#include <cstdio>

extern "C" {

struct Gpu {
    const char *name, *pci;
    unsigned index, readings;
};
static Gpu gpus[] = {{"Fake A", "00000000:01:00.0", 0, 0},
                     {"Fake B", "00000000:02:00.0", 1, 0},
                     {"Fake B", "00000000:03:00.0", 2, 0}};
static int users = 0;
const int INVALID = 2;

int fake_nvml_users() { return users; }
int nvmlInit_v2() { return users++, 0; }
int nvmlShutdown() { return users--, 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 3, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu** gpu) { return *gpu = &gpus[index], 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* pci, Gpu** gpu) {
    unsigned domain, bus, wanted_domain, wanted_bus;
    if (sscanf(pci, "%x:%x:", &wanted_domain, &wanted_bus) != 2) return INVALID;
    for (Gpu& g : gpus)
        if (sscanf(g.pci, "%x:%x:", &domain, &bus) == 2 && domain == wanted_domain && bus == wanted_bus)
            return *gpu = &g, 0;
    return INVALID;
}
int nvmlDeviceGetName(Gpu* gpu, char* name, unsigned length) {
    return snprintf(name, length, "%s", gpu->name), 0;
}
// Not supported by the first GPU, as on old GPUs.
int nvmlDeviceGetTotalEnergyConsumption(Gpu* gpu, unsigned long long* millijoules) {
    if (gpu->index == 0) return 3;
    return *millijoules = 1000000ull * ++gpu->readings, 0;
}
int nvmlDeviceGetPowerUsage(Gpu* gpu, unsigned* milliwatts) {
    return *milliwatts = 100000 * (gpu->index + 1), 0;
}

}  // extern "C"
