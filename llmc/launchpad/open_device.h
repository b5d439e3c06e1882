// Opens the device that a program is asked to run on.
#pragma once
#include <cstdio>
#include <memory>
#include <string>

#include "llmc/launchpad/launchpad.h"

// Chooses a device as choose_device() does and opens it; null stands for the CPU. options.device is ignored.
// Prints one line to `out`, which names the device and says why it was chosen:
//     device: NVIDIA H200, staged memory (the only discrete GPU)
// None if `out` is null. Throws Error if the request cannot be met.
std::unique_ptr<LaunchPad> open_device(const std::string& request, LaunchPadOptions options = {},
                                       FILE* out = stdout);

// Prints one line to `out` if there are several GPUs and a variable is set that hides some from CUDA, ROCm or
// oneAPI: Vulkan shows all of them.
void note_hidden_devices(FILE* out);

// The same where choose_device() has chosen for the request already.
std::unique_ptr<LaunchPad> open_device(const std::string& request, const DeviceChoice& choice,
                                       LaunchPadOptions options, FILE* out);

// Prints pad->memory_notes(), a line each. Null: the CPU.
void note_memory(LaunchPad* pad, FILE* out = stdout);
