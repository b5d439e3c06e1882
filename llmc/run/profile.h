// The table of train_gpt2 --profile.
#pragma once
class LaunchPad;

// Prints the table of train_gpt2 --profile: the time of each kernel and its share of a measured peak.
// Memory-bound kernels are compared with copy bandwidth. Kernels that state flops are compared with fp32 FMA,
// or with cooperative matrices if they are faster than that.
void print_profile(LaunchPad& pad);
