// What the processes of one job agree on before they train.
#pragma once
#include <string>

#include "llmc/distributed/communicator.h"
#include "llmc/model/ownership.h"
#include "llmc/run/run_setup.h"

// The device that this process opens: --device as it is or, if that is "auto" and the machine runs several
// processes of the job, a GPU of its own; on a machine without a GPU, the CPU, with this process's share of
// the cores. Error if there are fewer GPUs than processes.
std::string device_of_process(const Options& o, const Communicator& job);

// The part of the optimizer's state that this process holds. Error if the machines of the job run different
// numbers of processes.
OptimizerShare share_of_process(const Communicator& job);

// Throws Error, which names the first difference, if the processes do not have the same options and training
// data.
void check_agreement(const Options& o, const RunInputs& inputs, Communicator& job);
