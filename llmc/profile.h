// The table that train_gpt2 --profile ends with.
#pragma once
#include "llmc/launchpad.h"

// What each kernel took, and how near it came to what the device does at most: copying where it moves bytes;
// where it computes, fp32 multiply-adds, or matrix cores if it is faster than those.
void print_profile(LaunchPad& pad);
