#include "llmc/launchpad/open_device.h"

#include <omp.h>

std::unique_ptr<LaunchPad> open_device(const std::string& request, LaunchPadOptions options, FILE* out) {
    const DeviceChoice choice = choose_device(request);
    if (!choice.device) {
        const int threads = omp_get_max_threads();
        fprintf(out, "device: CPU, %d thread%s (%s)\n", threads, threads == 1 ? "" : "s",
                choice.reason.c_str());
        return nullptr;
    }
    options.device = std::to_string(choice.device->index);
    auto pad = std::make_unique<LaunchPad>(options);
    fprintf(out, "device: %s, %s memory (%s)\n", pad->device().name.c_str(),
            memory_mode_name(pad->memory_mode()), choice.reason.c_str());
    return pad;
}
