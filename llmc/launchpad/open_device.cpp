#include "llmc/launchpad/open_device.h"

#include <omp.h>

#include "llmc/base/error.h"
#include "llmc/launchpad/internal.h"

std::unique_ptr<LaunchPad> open_device(const std::string& request, LaunchPadOptions options, FILE* out) {
    const DeviceChoice choice = choose_device(request);
    if (!choice.device) {
        const int threads = omp_get_max_threads();
        print_line(out, "device: CPU, %d thread%s (%s)", threads, threads == 1 ? "" : "s",
                   choice.reason.c_str());
        return nullptr;
    }
    if (environment_switch("LAUNCHPAD_WITHOUT_DEVICE"))
        fail(
            "LAUNCHPAD_WITHOUT_DEVICE is set, so kernels are compiled and none runs: unset it, or use "
            "--device cpu");
    options.device = std::to_string(choice.device->index);
    auto pad = std::make_unique<LaunchPad>(options);
    print_line(out, "device: %s, %s memory (%s)", pad->device().name.c_str(),
               memory_mode_name(pad->memory_mode()), choice.reason.c_str());
    return pad;
}
