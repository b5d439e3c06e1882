// A job of --devices, with a process for each of them.
#pragma once
#include <optional>
#include <string>

#include "llmc/options/train_options.h"

// For --devices: mpirun starts this program with its arguments for each of them. Returns the exit status, or
// none if there is only one, which is then --device. Error if there is no MPI, or a launcher has started the
// program.
std::optional<int> train_on_devices(Options& o, int argc, char** argv);

// The command that resumes the run, and starts the processes that it has from --devices.
std::string resume_command(const Options& o);
// The environment variable in which those processes find the options of that command that name the devices.
extern const char* const devices_variable;
