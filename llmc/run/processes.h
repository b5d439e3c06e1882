// What the processes of one job agree on before they train.
#pragma once
#include <string>

#include "llmc/distributed/communicator.h"
#include "llmc/model/ownership.h"
#include "llmc/run/run_setup.h"

// The device that this process opens: --device as it is or, if that is "auto" and the machine runs several
// processes of the job, a GPU of its own; on a machine without a GPU, the CPU, with this process's share of
// the cores. Collective. Error if there are fewer GPUs than processes, unless each sees one of its own.
std::string device_of_process(const Options& o, Communicator& job);

// Prints a line if the launcher has bound the processes to few of the machine's cores.
void note_bound_cores(const Options& o, const Communicator& job);

// The part of the optimizer's state that this process holds. Error if the machines of the job run different
// numbers of processes.
OptimizerShare share_of_process(const Options& o, const Communicator& job);

// Throws Error in all processes, which names the first difference, if they were not given the same options.
void check_same_options(const Options& o, Communicator& job);

// The same if the processes do not see the same: options with their paths, training and validation data, the
// weights to start from, the tokenizer, HellaSwag.
void check_agreement(const Options& o, const RunInputs& inputs, Communicator& job);
