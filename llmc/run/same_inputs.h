// The processes of a job must have the same options and see the same files.
#pragma once
#include "llmc/distributed/communicator.h"
#include "llmc/run/run_setup.h"

// Throws Error in all processes, which names the first difference, if they were not given the same options.
void check_same_options(const Options& o, Communicator& job);
// The same for all options, with those of files and those that were chosen.
void check_all_options(const Options& o, Communicator& job);

// The same if the processes do not see the same training and validation data, weights to start from,
// tokenizer or HellaSwag.
void check_same_inputs(const RunInputs& inputs, Communicator& job);
