// The table that train_gpt2 --profile prints at the end.
#pragma once
#include "llmc/launchpad/launchpad.h"

// Prints the time of each kernel and its share of a measured peak. Memory-bound kernels are compared with
// copy bandwidth. Kernels that state flops are compared with fp32 FMA, or with cooperative matrices if they
// are faster than that.
void print_profile(LaunchPad& pad);
