// The self-test of a device: before a run takes a version of a kernel for the first time, the version runs on
// small shapes and is compared with the CPU's, in a child process, since drivers crash and hang. Results are
// stored next to the pipeline cache, for one device, driver and build (LaunchPad::prepare()).
#pragma once
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "llmc/launchpad/launchpad.h"

// In a child process: checks what the parent asked for, and ends the program. Otherwise enables this process
// to start such children. To be called by main() before anything else that takes long.
void begin_self_test(char** argv);

// open_device() for programs that have called begin_self_test(). Notes about what is wrong go to `out`; if
// that is null, take_notes() returns them.
std::unique_ptr<LaunchPad> open_checked_device(const std::string& request, LaunchPadOptions options = {},
                                               FILE* out = stdout);

std::vector<std::string> take_notes();

// Checks all versions in their default configs, stores each result and prints it with the rate of the
// kernel, for people who report an error. Returns whether all are right.
bool print_self_test(const std::string& request);
