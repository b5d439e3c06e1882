// What the processes of one job agree on before they train: devices, cores, and the division of a step.
#pragma once
#include <string>
#include <vector>

#include "llmc/distributed/communicator.h"
#include "llmc/launchpad/launchpad.h"
#include "llmc/model/ownership.h"
#include "llmc/run/division.h"
#include "llmc/run/run_setup.h"

// The devices of this machine; none without Vulkan.
std::vector<DeviceInfo> all_devices();
// Whether it is a GPU and has what the kernels need.
bool is_usable_gpu(const DeviceInfo& device);

// The device that this process opens: --device as it is or, if that is "auto" and the machine runs several
// processes of the job, a GPU of its own; on a machine without a GPU, the CPU, with this process's share of
// the cores. Counts the processes that use it. Collective. Error if there are fewer GPUs than processes that
// want one, unless each sees one of its own.
std::string device_of_process(Options& o, Communicator& job);

// Prints what people should know of the devices of all processes, and do not know yet. Collective.
void note_devices(const Options& o, LaunchPad* pad, Communicator& job);

// Once the devices are open: whether they are unlike. Collective.
void compare_devices(Options& o, const LaunchPad* pad, Communicator& job);

// Checks -d; if the devices are unlike, it is a micro-batch of each process unless it is given. Collective.
void choose_step_of_all(Options& o, Communicator& job);

// How the processes divide a step: as a resumed run did, if they are the same, else by --share, else by the
// times that `measure` finds; processes that cost others more than they bring then have no sequences.
// Collective.
Division agree_on_division(const Options& o, const Start& start, const LaunchPad* pad,
                           const MeasureDivision& measure, Communicator& job);

// Gives this process its share of the machine's cores, if these processes of the job train. Collective.
void share_cores(const Options& o, const std::vector<bool>& members, Communicator& job);

// The division that suits the seconds in which each process computed a sequence, if steps then end clearly
// sooner; else the one before. 0 in a process: unknown. Collective.
Division division_by_speed(const Division& before, const Options& o, double seconds, Communicator& job);

// Prints a line if the launcher has bound the processes to few of the machine's cores.
void note_bound_cores(const Options& o, const Communicator& job);

// The part of the optimizer's state that this process holds. Error if the machines of the job run different
// numbers of processes.
OptimizerShare share_of_process(const Options& o, const Communicator& job);
