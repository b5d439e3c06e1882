// Options that train_gpt2 and smaller programs have in common.
#pragma once
#include "llmc/options/option_table.h"

struct TextOptions;
struct SamplerOptions;

void add_text_options(OptionTable& table, TextOptions& text);  // how text is read
void refuse_text_options(OptionTable& table);                  // Error if one is given
void add_sampler_options(OptionTable& table, SamplerOptions& sampler);

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
