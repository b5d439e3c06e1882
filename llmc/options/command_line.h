// The frame of the smaller programs' main().
#pragma once
#include <functional>

#include "llmc/options/shared_options.h"

// The command line of a smaller program, which has --help, --version, --threads and --simd.
struct CommandLine : OptionTable {
    CommandLine(const char* program, const char* description);
    CommandLine(const CommandLine&) = delete;

    void add_device(std::string& device);  // --device and --tensor-cores
    void accept_cpu_as_device();           // --device of a program that uses no GPU: accepts auto and cpu

    // Prints a note for each option that is given in vain.
    void note(const std::vector<InVain>& options) const;

    // Parses the command line, does the work and returns main's exit status. Each error is one line, preceded
    // by the program's name, and status 1.
    int run(int argc, char** argv, const std::function<void()>& work);

   private:
    MachineOptions machine;
    std::string cpu = "auto";
};
