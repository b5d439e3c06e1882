#include "llmc/launchpad/open_device.h"

#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "llmc/base/error.h"
#include "llmc/launchpad/internal.h"

void note_hidden_devices(FILE* out) {
    for (const char* name : {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
                             "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"}) {
        const char* visible = getenv(name);
        if (!visible) continue;
        const bool hides_all = !*visible || !strcmp(visible, "-1");
        if (std::ranges::count_if(list_devices(), &DeviceInfo::is_gpu) > (hides_all ? 0 : 1))
            print_line(out, "note: %s has no effect on Vulkan: %s", name,
                       hides_all ? "--device cpu takes the CPU"
                                 : "choose a GPU with --device (--list-devices shows them) or "
                                   "MESA_VK_DEVICE_SELECT");
        return;
    }
}

void note_memory(LaunchPad* pad, FILE* out) {
    if (!pad) return;
    for (const std::string& note : pad->memory_notes()) print_line(out, "note: %s", note.c_str());
}

std::unique_ptr<LaunchPad> open_device(const std::string& request, LaunchPadOptions options, FILE* out) {
    return open_device(request, choose_device(request), std::move(options), out);
}

std::unique_ptr<LaunchPad> open_device(const std::string& request, const DeviceChoice& choice,
                                       LaunchPadOptions options, FILE* out) {
    if (!choice.device) {
        const int threads = omp_get_max_threads();
        if (out)
            print_line(out, "device: CPU, %d thread%s (%s)", threads, threads == 1 ? "" : "s",
                       choice.reason.c_str());
        return nullptr;
    }
    if (environment_switch("LAUNCHPAD_WITHOUT_DEVICE"))
        fail(
            "LAUNCHPAD_WITHOUT_DEVICE is set, so kernels are compiled and none runs: unset it, or use "
            "--device cpu");
    if (out && (request == "auto" || request == "gpu")) note_hidden_devices(out);
    options.device = std::to_string(choice.device->index);
    auto pad = std::make_unique<LaunchPad>(options);
    if (out)
        print_line(out, "device: %s, %s memory (%s)", pad->device().name.c_str(),
                   memory_mode_name(pad->memory_mode()), choice.reason.c_str());
    return pad;
}
