// Command lines: options of a table, and words, in any order.
#pragma once
#include <string>
#include <vector>

#include "llmc/options/option_table.h"

// Sets the options of a table from arguments (without the program's name): --name value, --name=value,
// -x value, -xvalue, flags, --no-name. A list may be given several times, everything else once. Throws Error,
// one line, for the first wrong argument.
void parse_arguments(OptionTable& table, const std::vector<std::string>& arguments);

// What --help prints.
std::string help_text(const OptionTable& table);

// tensor cores of the GPU; by_driver: except those of faulty drivers (launchpad/device_features.h)
enum class TensorCores { by_driver, never, always };

// What every program lets choose of the machine.
struct MachineOptions {
    int threads = 0;  // CPU threads; 0: OMP_NUM_THREADS, or all cores
    std::string simd = "auto";
    TensorCores tensor_cores = TensorCores::by_driver;
    bool help = false, version = false;
};
void add_help_options(OptionTable& table, MachineOptions& o);
void add_cpu_options(OptionTable& table, MachineOptions& o);         // --threads and --simd
void add_tensor_core_option(OptionTable& table, MachineOptions& o);  // --tensor-cores and --no-tensor-cores
// After parsing: prints what --help or --version asks for, and then returns false. Else takes the instruction
// set of --simd or the environment variable LLMC_SIMD, and sets environment variables for programs that this
// one starts.
bool take_machine_options(OptionTable& table, const MachineOptions& o);
